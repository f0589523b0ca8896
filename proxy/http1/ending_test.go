package http1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// silence is how long nothing must come in these tests.
const silence = 20 * time.Millisecond

// come is what has come of an answer when nothing more does for a while.
func come(t testing.TB, w *sockettest.Client) string {
	t.Helper()
	var all []byte
	b := make([]byte, 4096)
	for {
		_ = w.SetReadDeadline(time.Now().Add(silence))
		n, err := w.Conn.Read(b)
		if all = append(all, b[:n]...); err != nil {
			if !timedOut(err) {
				t.Fatalf("got %v after %q", err, all)
			}
			_ = w.SetReadDeadline(time.Now().Add(soon))
			return string(all)
		}
	}
}

// Ending is called once, and before what ends the answer is sent; what it is given
// sends what there is before that.
func TestBeforeEnd_CalledBeforeTheLastBytes(t *testing.T) {
	for _, c := range []struct {
		topic, request string
		answer         func(x *Exchange)
		before, end    string // what comes before Ending returns, and after it
	}{
		{"whole", "GET / HTTP/1.1", func(x *Exchange) { _ = x.Send([]byte("hello")) }, "Connection: close||", "hello"},
		{"empty", "GET / HTTP/1.1", func(x *Exchange) { _ = x.Send(nil) }, "", "||"},
		{"HEAD", "HEAD / HTTP/1.1", func(x *Exchange) { _ = x.Send([]byte("hello")) }, "", "Connection: close||"},
		{"in pieces", "GET / HTTP/1.1", func(x *Exchange) {
			_ = x.StartBody(Framing{FixedLength, 10})
			_, _ = x.Write([]byte("hello"))
			_, _ = x.Write([]byte("world"))
			_ = x.End()
		}, "hello", "world"},
		{"in chunks", "GET / HTTP/1.1", func(x *Exchange) {
			_ = x.StartBody(Framing{Chunked, -1})
			_, _ = x.Write([]byte("hello"))
			_ = x.End()
		}, "5|hello|", "0||"},
		{"until the end", "GET / HTTP/1.0", func(x *Exchange) {
			_ = x.StartBody(Framing{UntilClose, -1})
			_, _ = x.Write([]byte("hello"))
			_ = x.End()
		}, "hello", ""},
	} {
		calls, let := make(chan struct{}, 10), make(chan struct{})
		p := serving(t, func(x *Exchange) {
			x.BeforeEnd = func(flush func()) {
				flush()
				calls <- struct{}{}
				<-let
			}
			x.Begin(200)
			c.answer(x)
		}, nil)
		w := p.dial(t, lined(c.request+"|Host: a|Connection: close||"))
		await.Value(t, calls, "Ending")
		if got := come(t, w); !strings.HasSuffix(got, lined(c.before)) || c.before == "" && got != "" {
			t.Errorf("%s: before the end %q came; want %q", c.topic, got, lined(c.before))
		}
		close(let)
		if got, err := io.ReadAll(w.Reader); !strings.HasSuffix(string(got), lined(c.end)) || c.end == "" && len(got) > 0 || err != nil {
			t.Errorf("%s: at the end %q came, %v; want %q", c.topic, got, err, lined(c.end))
		}
		if len(calls) > 0 {
			t.Errorf("%s: it was called again", c.topic)
		}
	}
}

// An answer that breaks off has no end, so Ending is not called.
func TestBeforeEnd_NotCalledForAbortedResponse(t *testing.T) {
	p := serving(t, func(x *Exchange) {
		x.BeforeEnd = func(func()) { t.Error("it was called") }
		x.Begin(200)
		_ = x.StartBody(Framing{FixedLength, 10})
		_, _ = x.Write([]byte("hello"))
		x.Abort()
	}, nil)
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	_, _ = io.ReadAll(w.Reader)
}

// A response that is delimited by the end of the connection ends with a reset if its
// handler panics before all of it was sent. A whole one ends in an orderly way.
func TestServer_PanicTruncatesTheResponse(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct {
			topic string
			rest  func(x *Exchange) // what follows "half of it"
			want  string            // what is received if that is the whole response
		}{
			{"half of the body", func(*Exchange) {}, ""},
			{"its end not sent", func(x *Exchange) { _, _ = x.Write([]byte(", whole")); _ = x.End() }, ""},
			{"sent", func(x *Exchange) { _, _ = x.Write([]byte(", whole")); _ = x.End(); _ = x.Flush() }, "half of it, whole"},
		} {
			p := serving(t, func(x *Exchange) {
				x.Begin(200)
				_ = x.StartBody(Framing{UntilClose, -1})
				_, _ = x.Write([]byte("half of it"))
				_ = x.Flush()
				c.rest(x)
				panic("oh")
			}, func(s *Server) { s.OnPanic = func(any) {} })
			w := p.dial(t, lined("GET / HTTP/1.0||"))
			got, err := io.ReadAll(w.Reader)
			if (err == nil) != (c.want != "") || !strings.HasSuffix(string(got), c.want) {
				t.Errorf("%s: got %q, %v; want %q", c.topic, got, err, c.want)
			}
		}
	})
}

// What ends an answer comes when its handler has returned.
func TestEnd_IsSentAfterTheHandler(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		answered, let := make(chan struct{}), make(chan struct{})
		p := serving(t, func(x *Exchange) {
			says(x)
			close(answered)
			<-let
		}, nil)
		w := p.dial(t, lined("GET /late HTTP/1.1|Host: a|Connection: close||"))
		await.Value(t, answered, "answer")
		if _, ok := w.Conn.(*net.TCPConn); ok { // a read of TLS that has failed fails for good
			if got := come(t, w); got != "" {
				t.Errorf("%q came before the handler had returned", got)
			}
		}
		close(let)
		if _, body := w.WantStatus(200); body != "/late" {
			t.Errorf("got %q", body)
		}
		w.WantClosed()
	})
}

// Whoever switches has the connection whole: with what came behind the request, without
// deadlines, and for as long as it likes.
func TestSwitchProtocols_HandsOverUnreadBytes(t *testing.T) {
	const brief = time.Second // which a handshake stays below on a busy machine
	sockettest.OverBoth(t, func(t testing.TB) {
		handed, let := make(chan net.Conn, 1), make(chan struct{})
		p := serving(t, func(x *Exchange) {
			x.Begin(101).Add("X-A", "1")
			c, unread, err := x.SwitchProtocols("echo")
			if err != nil || string(unread) != "early" {
				t.Errorf("got %q, %v", unread, err)
			}
			handed <- c
			<-let // it may stay for as long as the connection does
		}, func(s *Server) { s.Timeouts = Timeouts{Header: brief, Body: brief, Write: brief, Idle: brief} })
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: echo||")+"early")
		if res, _ := w.WantStatus(101); res.Header.Get("Upgrade") != "echo" || res.Header.Get("Connection") != "Upgrade" || res.Header.Get("X-A") != "1" {
			t.Errorf("got %v", res.Header)
		}
		c := await.Value(t, handed, "connection")
		defer c.Close()
		if err := p.server.Shutdown(t.Context()); err != nil || len(p.server.conns.All()) != 0 {
			t.Errorf("Shutdown waited for it: %v, %d connections", err, len(p.server.conns.All()))
		}
		close(let)
		waited := time.NewTimer(2 * brief) // beyond each of the deadlines
		<-waited.C
		go w.Send("late")
		b := make([]byte, 4)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "late" {
			t.Errorf("got %q, %v", b, err)
		}
		if _, err := io.WriteString(c, "back"); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(w, b); err != nil || string(b) != "back" {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

// What cannot be switched can still be answered.
func TestSwitchProtocols_Refused(t *testing.T) {
	p := serving(t, func(x *Exchange) {
		status := 101
		if x.Path() == "/200" {
			status = 200
		}
		x.Begin(status)
		if _, _, err := x.SwitchProtocols("echo"); !errors.Is(err, ErrResponseState) {
			t.Errorf("%s: got %v", x.Path(), err)
		}
		says(x)
	}, nil)
	for _, said := range []string{
		"GET /200 HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: echo||", "GET /old HTTP/1.0|Connection: Upgrade|Upgrade: echo||",
		"POST /body HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: echo|Content-Length: 2||hi",
	} {
		p.dial(t, lined(said)).WantStatus(200)
	}
}

// fills responds with the path, and with more than a socket accepts at once.
func fills(x *Exchange) {
	x.Begin(200).Add("X-Fill", strings.Repeat("x", 16<<20))
	_ = x.Send([]byte(x.Path()))
}

// A response that is longer than what the socket accepts arrives whole, and the
// connection is kept.
func TestDelayedWrite_BlockedByClient(t *testing.T) {
	p := serving(t, fills, nil)
	w := p.dial(t, "")
	for _, path := range []string{"/1", "/2"} {
		w.Send(lined("GET " + path + " HTTP/1.1|Host: a||"))
		if res, body := w.WantStatus(200); body != path || len(res.Header.Get("X-Fill")) != 16<<20 {
			t.Errorf("%s got %q and %d bytes in the head", path, body, len(res.Header.Get("X-Fill")))
		}
	}
}

// A response is sent even if the time for the next request is over at once.
func TestDelayedWrite_IdleTimeoutPassed(t *testing.T) {
	p := serving(t, says, func(s *Server) {
		s.Timeouts = Timeouts{Header: time.Minute, Idle: time.Nanosecond}
	})
	w := p.dial(t, lined("GET /1 HTTP/1.1|Host: a||"))
	if _, body := w.WantStatus(200); body != "/1" {
		t.Errorf("got %q", body)
	}
	w.WantClosed()
}

// A response that Shutdown finds unsent, because the connection waits for a request
// already, arrives whole. A request that has arrived by then is served, as the last one.
func TestDelayedWrite_DuringShutdown(t *testing.T) {
	for _, handle := range []Handler{says, fills} {
		for _, another := range []string{"", "GET /2 HTTP/1.1|Host: a||"} {
			served, sent := make(chan struct{}, 1), make(chan struct{})
			p := serving(t, func(x *Exchange) {
				handle(x)
				if c := x.conn; x.Path() == "/1" {
					served <- struct{}{}
					<-sent
					await.Until(t, "request", func() bool { return another == "" || x.conn.socket.State() == socket.Readable })
					c.readFirstFunc = func(fd uintptr) bool {
						c.readFirstFunc = c.readFirst
						c.endIdleWait()
						return c.readFirst(fd)
					}
				}
			}, nil)
			w := p.dial(t, lined("GET /1 HTTP/1.1|Host: a||"))
			await.Value(t, served, "request")
			w.Send(lined(another))
			close(sent)
			if _, body := w.WantStatus(200); body != "/1" {
				t.Errorf("got %q", body)
			}
			if another != "" {
				if _, body := w.WantStatus(200); body != "/2" {
					t.Errorf("got %q", body)
				}
			}
			if another == "" {
				w.WantClosed()
			}
		}
	}
}

// A client that has reset its connection gets nothing more, and its connection ends.
func TestDelayedWrite_ClientReset(t *testing.T) {
	served := make(chan struct{}, 1)
	p := serving(t, func(x *Exchange) {
		says(x)
		served <- struct{}{}
		await.Until(t, "reset", func() bool { return x.conn.socket.State() == socket.Reset })
	}, nil)
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	await.Value(t, served, "request")
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	w.Close()
	await.Until(t, "end of the connection", func() bool { return len(p.server.conns.All()) == 0 })
}

// A response that is sent while another goroutine writes to the connection is noticed in
// builds with the tag poison, whichever way it takes.
func TestDelayedWrite_PanicsIfAnotherWrites(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for topic, respond := range map[string]Handler{
			"after the handler": says,
			"interim":           func(x *Exchange) { x.Interim(103); _ = x.SendInterim(); says(x) },
			"large":             func(x *Exchange) { x.Begin(200); _ = x.Send(make([]byte, 1<<20)) },
		} {
			panics := make(chan any, 1)
			p := serving(t, func(x *Exchange) {
				x.conn.writeGuard.begin() // as a write that has not ended
				respond(x)
			}, func(s *Server) {
				s.OnPanic = func(v any) { panics <- v }
			})
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
			got, err := http.ReadResponse(w.Reader, nil)
			if (err != nil) != reuse.Poisoned {
				t.Errorf("%s: got %v, %v", topic, got, err)
			}
			if reuse.Poisoned {
				await.Value(t, panics, "panic")
			}
		}
	})
}

// So is a request.
func TestReuseAttempt_PanicsIfAnotherWrites(t *testing.T) {
	address, _ := answering(t, okAnswer)
	p := poolTo(t, &Client{}, endpointOf(t, address))
	if got, err := ask(t, p, "/"); got != "ok" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	p.kept()[0].writeGuard.begin() // as a write that has not ended
	defer func() {
		if v := recover(); (v != nil) != reuse.Poisoned {
			t.Errorf("got %v", v)
		}
	}()
	_, _ = ask(t, p, "/")
}
