package http1

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

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

// A client that has reset its connection gets nothing more, and that is not an error.
func TestDelayedWrite_ClientReset(t *testing.T) {
	served, closed := make(chan struct{}, 1), make(chan error, 1)
	p := serving(t, func(x *Exchange) {
		says(x)
		served <- struct{}{}
		await.Until(t, "reset", func() bool { return x.conn.socket.State() == socket.Reset })
	}, func(s *Server) {
		s.OnClose = func(_ net.Conn, err error) { closed <- err }
	})
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	await.Value(t, served, "request")
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	w.Close()
	if err := await.Value(t, closed, "end of the connection"); err != nil {
		t.Errorf("got %v", err)
	}
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
			if (err != nil) != poisoned {
				t.Errorf("%s: got %v, %v", topic, got, err)
			}
			if poisoned {
				await.Value(t, panics, "panic")
			}
		}
	})
}

// So is a request.
func TestReuseAttempt_PanicsIfAnotherWrites(t *testing.T) {
	address, _ := answering(t, okAnswer)
	p := (&Client{}).NewPool(Endpoint{Network: "tcp", Address: address})
	defer p.Close()
	if got, err := ask(t, p, "/"); got != "ok" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	p.kept()[0].writeGuard.begin() // as a write that has not ended
	defer func() {
		if v := recover(); (v != nil) != poisoned {
			t.Errorf("got %v", v)
		}
	}()
	_, _ = ask(t, p, "/")
}
