package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// serving starts a server without upstream.
func serving(t testing.TB, handle Handler, set func(*Server)) *proxy {
	t.Helper()
	return proxyTo(t, "", func(p *proxy) {
		p.server.Handler = handle
		if set != nil {
			set(p.server)
		}
	})
}

// says answers with the path, and reads no body.
func says(x *Exchange) {
	x.Begin(200)
	_ = x.Send([]byte(x.Path()))
}

// reads answers with the body.
func reads(x *Exchange) {
	var body []byte
	if b := x.Body(); b != nil {
		read, err := io.ReadAll(b)
		if err != nil {
			_ = x.sendText(400, err.Error())
			return
		}
		body = read
	}
	x.Begin(200)
	_ = x.Send(append([]byte(x.Path()+" "), body...))
}

// What a handler keeps in an exchange is there for its next request.
func TestServer_HandlerStateIsKept(t *testing.T) {
	p := serving(t, func(x *Exchange) {
		n, _ := x.State.(int)
		x.State = n + 1
		x.Begin(200)
		_ = x.Send([]byte{'0' + byte(n)})
	}, nil)
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||GET / HTTP/1.1|Host: a||GET / HTTP/1.1|Host: a||"))
	for _, want := range []string{"0", "1", "2"} {
		if _, got := w.WantStatus(200); got != want {
			t.Errorf("state %s, want %s", got, want)
		}
	}
}

// Requests that come together are answered one by one and in order, wherever the
// bytes are split.
func TestServer_PipelinedAtEverySplit(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, reads, nil)
		all := lined("|GET /1 HTTP/1.1|Host: a||POST /2 HTTP/1.1|Host: a|Content-Length: 3||two||POST /3 HTTP/1.1|Host: a|Transfer-Encoding: chunked||5|three|0|A: b||HEAD /4 HTTP/1.1|Host: a|Content-Length: 2||xxGET /5 HTTP/1.1|Host: a|Connection: close||GET /6 HTTP/1.1|Host: a||")
		for at := range len(all) {
			w := p.dial(t, all[:at])
			w.Send(all[at:])
			for _, want := range []string{"/1 ", "/2 two", "/3 three"} {
				if _, got := w.WantStatus(200); got != want {
					t.Fatalf("split at %d: got %q; want %q", at, got, want)
				}
			}
			if res, _ := w.ReadResponse("HEAD"); res.ContentLength != 5 {
				t.Fatalf("split at %d: HEAD got %d", at, res.ContentLength)
			}
			if res, got := w.WantStatus(200); got != "/5 " || !res.Close {
				t.Fatalf("split at %d: got %q, %v", at, got, res.Close)
			}
			w.WantClosed()
			w.Close()
		}
	})
}

func TestServer_RejectsAndCloses(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct {
			raw    string
			status int
		}{
			{"GET / HTTP/1.1|Host: a|X y||GET /next HTTP/1.1|Host: a||", 400},
			{"CONNECT a:1 HTTP/1.1|Host: a||GET / HTTP/1.1|Host: a||", 405},
			{"GET / HTTP/3.0|Host: a||", 505},
			{"POST / HTTP/1.1|Host: a|Transfer-Encoding: gzip||", 501},
			{"POST / HTTP/1.1|Host: a|Expect: foo|Content-Length: 1||", 417},
			{"GET /" + strings.Repeat("a", 9000) + " HTTP/1.1|Host: a||", 414},
			{"GET / HTTP/1.1|Host: a|X: " + strings.Repeat("a", 40_000) + "||", 431},
			{"PRI * HTTP/2.0||SM||", 505},
			{"|||||||||||GET / HTTP/1.1|Host: a||", 400},
			{"\x16\x03\x01\x02\x00\x01\x00", 400},
		} {
			reached := 0
			p := serving(t, func(x *Exchange) { reached++; says(x) }, nil)
			w := p.dial(t, lined(c.raw))
			res, _ := w.WantStatus(c.status)
			if !res.Close {
				t.Errorf("%.60q: the connection does not end", c.raw)
			}
			w.WantClosed()
			if reached > 0 {
				t.Errorf("%.60q: it reached the handler", c.raw)
			}
		}
	})
}

func TestServer_ErrorHandler(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, func(s *Server) {
			s.ErrorHandler = func(x *Exchange, why error) {
				x.Begin(why.(*Error).Status).Add("X-Why", why.Error()) //nolint:errorlint // it is never wrapped
				_ = x.Send(nil)
			}
		})
		w := p.dial(t, lined("GET / HTTP/1.1||"))
		if res, _ := w.WantStatus(400); res.Header.Get("X-Why") != ErrHostMissing.Error() {
			t.Errorf("got %v", res.Header)
		}
		w.WantClosed()
	})
}

func TestServer_HTTP10(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, nil)
		w := p.dial(t, lined("GET /1 HTTP/1.0||"))
		if res, _ := w.WantStatus(200); !res.Close {
			t.Error("the connection does not end")
		}
		w.WantClosed()
		w = p.dial(t, lined("GET /1 HTTP/1.0|Connection: keep-alive||"))
		if res, _ := w.WantStatus(200); res.Header.Get("Connection") != "keep-alive" {
			t.Errorf("got %v", res.Header)
		}
		w.Send(lined("GET /2 HTTP/1.0||"))
		w.WantStatus(200)
		w.WantClosed()
	})
}

// An answer that is streamed, and one that its handler has not finished.
func TestServer_Streams(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		step := make(chan bool)
		p := serving(t, func(x *Exchange) {
			h := x.Begin(200)
			h.Add("X-A", "1")
			if err := x.StartBody(Framing{Chunked, -1}); err != nil {
				t.Error(err)
			}
			_, _ = x.Write(nil) // no chunk, and not the last one
			_ = x.Flush()
			for <-step {
				_, _ = x.Write([]byte("piece"))
				_ = x.Flush()
			}
			if x.Path() == "/whole" {
				_ = x.End()
			}
		}, nil)
		w := p.dial(t, lined("GET /whole HTTP/1.1|Host: a||"))
		res, err := http.ReadResponse(w.Reader, nil)
		if err != nil || res.Header.Get("X-A") != "1" {
			t.Fatalf("got %v, %v", res, err)
		}
		for range 3 {
			step <- true
			piece := make([]byte, 5)
			if _, err := io.ReadFull(res.Body, piece); err != nil || string(piece) != "piece" {
				t.Fatalf("got %q, %v", piece, err)
			}
		}
		step <- false
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
			t.Fatalf("got %q, %v", rest, err)
		}
		w.Send(lined("GET /cut HTTP/1.1|Host: a||"))
		step <- true
		step <- false
		if res, err = http.ReadResponse(w.Reader, nil); err == nil {
			_, err = io.ReadAll(res.Body)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v; want that it is cut", err)
		}
	})
}

func TestServer_WrongBodyLengths(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		errs := make(chan error, 1)
		p := serving(t, func(x *Exchange) {
			x.Begin(200)
			_ = x.StartBody(Framing{FixedLength, 3})
			_, err := x.Write([]byte("four"))
			if x.Path() == "/less" {
				_, _ = x.Write([]byte("12"))
				err = x.End()
			}
			errs <- err
		}, nil)
		for path, want := range map[string]error{"/more": ErrBodyTooLong, "/less": ErrBodyTooShort} {
			w := p.dial(t, lined("GET "+path+" HTTP/1.1|Host: a||"))
			if err := await.Value(t, errs, "error"); !errors.Is(err, want) {
				t.Errorf("got %v; want %v", err, want)
			}
			if raw, _ := io.ReadAll(w.Reader); strings.Contains(string(raw), "four") {
				t.Errorf("%s: the client got %q", path, raw)
			}
		}
	})
}

// A field that cannot be sent is not sent: another answer can be given.
func TestServer_InvalidOutgoingFields(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, func(x *Exchange) {
			x.Begin(200).Add("Location", "/x\r\nA: b")
			if err := x.Send(nil); !errors.Is(err, ErrOutgoing) {
				t.Errorf("got %v", err)
			}
			_ = x.sendText(500, "no")
		}, nil)
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		if res, _ := w.WantStatus(500); res.Header.Get("A") != "" {
			t.Errorf("got %v", res.Header)
		}
	})
}

func TestServer_Expect(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, func(x *Exchange) {
			if x.Path() == "/no" {
				_ = x.sendText(403, "no")
				return
			}
			reads(x)
		}, nil)
		w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Expect: 100-Continue|Content-Length: 2||"))
		if line, err := w.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" || err != nil {
			t.Fatalf("got %q, %v", line, err)
		}
		_, _ = w.ReadString('\n')
		w.Send("hi")
		if _, body := w.WantStatus(200); body != "/ hi" {
			t.Errorf("got %q", body)
		}
		// A final answer instead of 100: the body is still owed, so that nothing that
		// comes can be a request.
		w.Send(lined("POST /no HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 20||"))
		if res, _ := w.WantStatus(403); !res.Close {
			t.Error("the connection does not end")
		}
		w.Send(lined("GET / HTTP/1.1|Host: a||"))
		w.WantClosed()
		// HTTP/1.0 has no 100, and no body nothing to wait for.
		w = p.dial(t, lined("POST / HTTP/1.0|Expect: 100-continue|Content-Length: 2||hi"))
		w.WantStatus(200)
		w = p.dial(t, lined("POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 0||"))
		w.WantStatus(200)
	})
}

// A body that nobody reads is read if that is not much, and ends the connection
// otherwise. The answer arrives in both cases.
func TestServer_UnreadBodies(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, nil)
		w := p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: 100000||")+strings.Repeat("x", 100000)+lined("GET /2 HTTP/1.1|Host: a||"))
		w.WantStatus(200)
		if _, body := w.WantStatus(200); body != "/2" {
			t.Errorf("got %q", body)
		}
		w = p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: 1000000||"))
		if res, _ := w.WantStatus(200); !res.Close {
			t.Error("the connection does not end")
		}
		w = p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Transfer-Encoding: chunked||5|hello|nonsense|GET / HTTP/1.1|Host: a||"))
		w.WantStatus(200)
		w.WantClosed()
	})
}

// A client that reads the answer only after it has sent everything gets it, even if that
// is more than sockets hold.
func TestServer_UploadEndsAfterTheAnswer(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, nil)
		const length = 32 << 20
		w := p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: "+strconv.Itoa(length)+"||"))
		part := strings.Repeat("x", 1<<20)
		for range length / len(part) {
			w.Send(part)
		}
		if res, body := w.WantStatus(200); body != "/1" || !res.Close {
			t.Errorf("got %q, %v", body, res.Header)
		}
		w.WantClosed()
	})
}

// Neither Shutdown nor a client that sends a byte now and then keeps a connection open
// after its answer.
func TestServer_UploadIsCutOff(t *testing.T) {
	for name, slow := range map[string]bool{"shutdown": false, "slow": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serving(t, says, nil)
			w := p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: 1000000000000||"))
			w.WantStatus(200)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				part, pause := make([]byte, 1<<10), time.NewTicker(50*time.Millisecond)
				defer pause.Stop()
				if slow {
					part = part[:1]
				}
				for {
					if _, err := w.Conn.Write(part); err != nil {
						return
					}
					if slow {
						<-pause.C
					}
				}
			}()
			if !slow {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				if err := p.server.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-ended:
			case <-time.After(soon): // which is less than lingerTimeout
				t.Error("the connection is open")
			}
		})
	}
}

// A client that sends no more still gets its answer.
func TestServer_HalfClosed(t *testing.T) {
	release := make(chan struct{})
	p := serving(t, func(x *Exchange) {
		<-release
		if x.conn.socket.State() != socket.HalfClosed {
			t.Errorf("got %d; want that the client sends no more", x.conn.socket.State())
		}
		reads(x)
	}, nil)
	w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Content-Length: 2||hi"))
	sendsNoMore(w.Conn)
	close(release)
	if _, body := w.WantStatus(200); body != "/ hi" {
		t.Errorf("got %q", body)
	}
	w.WantClosed()
}

// aborts counts calls of Abort.
type aborts chan struct{}

func (a aborts) Abort() { a <- struct{}{} }

// A client that leaves is noticed while its request waits; what its leaving looks
// like is a matter of policy.
func TestServer_ClientGone(t *testing.T) {
	for _, c := range []struct {
		policy HalfClosePolicy
		leave  func(*net.TCPConn)
	}{
		{AllowHalfClose, func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }},
		{AbortOnHalfClose, func(c *net.TCPConn) { _ = c.CloseWrite() }},
		{AbortOnHalfClose, func(c *net.TCPConn) { c.Close() }},
	} {
		noticed, inside := make(aborts, 10), make(chan struct{})
		p := serving(t, func(x *Exchange) {
			x.MonitorClient(noticed)
			close(inside)
			select {
			case <-noticed:
			case <-time.After(soon):
				t.Error("nobody noticed")
			}
			x.StopMonitoringClient(noticed)
			if !x.ClientGone() {
				t.Error("the client has not left")
			}
			x.Abort()
		}, func(s *Server) { s.HalfClose = c.policy })
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||GET /more HTTP/1.1|Host: a||"))
		<-inside
		c.leave(w.Conn.(*net.TCPConn))
		await.Until(t, "connection closed", func() bool { return len(p.server.conns.All()) == 0 })
	}
}

func TestServer_GracefulShutdown(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		inside, release := make(chan struct{}), make(chan struct{})
		p := serving(t, func(x *Exchange) {
			if x.Path() == "/slow" {
				close(inside)
				<-release
			}
			says(x)
		}, nil)
		resting := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		resting.WantStatus(200)
		w := p.dial(t, lined("GET /slow HTTP/1.1|Host: a||"))
		<-inside
		done := make(chan error, 1)
		go func() { done <- p.server.Shutdown(t.Context()) }()
		resting.WantClosed()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if c, err := net.Dial("tcp", p.addr); err == nil {
			sockettest.NewClient(t, c).WantClosed() // it serves no new connection
		}
		close(release)
		if res, _ := w.WantStatus(200); !res.Close {
			t.Error("the last answer does not say so")
		}
		w.WantClosed()
		if err := await.Value(t, done, "end"); err != nil {
			t.Error(err)
		}
	})
}

func TestServer_ShutdownAbortsAfterDeadline(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		inside, release := make(chan struct{}), make(chan struct{})
		p := serving(t, func(x *Exchange) { close(inside); <-release; says(x) }, nil)
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		<-inside
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := p.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(release)
		w.WantClosed()
	})
}

// Before it ends, a server says so for a while, and still takes connections.
func TestServer_DisableKeepAlives(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, nil)
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		w.WantStatus(200)
		p.server.DisableKeepAlives()
		for _, w := range []*sockettest.Client{w, p.dial(t, "")} {
			w.Send(lined("GET / HTTP/1.1|Host: a||"))
			if res, _ := w.WantStatus(200); !res.Close {
				t.Error("the answer does not say so")
			}
			w.WantClosed()
		}
	})
}

// A connection that waits holds no buffer.
func TestServer_IdleConnectionsAreSmall(t *testing.T) {
	const connections = 500
	p := serving(t, says, nil)
	before := inUse()
	for range connections {
		p.dial(t, lined("GET / HTTP/1.1|Host: a||")).WantStatus(200)
	}
	await.Until(t, "small", func() bool { return int(inUse()-before)/connections < 8<<10+wireSize })
}

// wireSize is what the client's half of a connection holds in a test: a reader,
// the one in http.ReadResponse, and the connection.
const wireSize = 4096 + 4096

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestServer_HandsHTTP2Over(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		got := make(chan string, 1)
		p := serving(t, says, func(s *Server) {
			s.HTTP2 = func(c net.Conn, received []byte) {
				defer c.Close()
				b := make([]byte, len(preface)+5)
				_, _ = io.ReadFull(io.MultiReader(bytes.NewReader(received), c), b)
				got <- string(b)
			}
		})
		for at := range len(preface) {
			w := p.dial(t, preface[:at])
			w.Send(preface[at:] + "12345")
			if s := await.Value(t, got, "preface"); s != preface+"12345" {
				t.Errorf("split at %d: got %q", at, s)
			}
			w.Close()
		}
		w := p.dial(t, "PRI * HTTP/2.0\r\n\r\nXX")
		w.WantStatus(505)
	})
}

// Interim answers go to those who know them, before the final one and not after.
func TestServer_Interim(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, func(x *Exchange) {
			x.Interim(103).Add("Link", "</x>")
			if err := x.SendInterim(); err != nil {
				t.Error(err)
			}
			says(x)
			x.Interim(103)
			if err := x.SendInterim(); !errors.Is(err, ErrResponseState) {
				t.Errorf("got %v", err)
			}
		}, nil)
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
		if res, _ := w.WantStatus(103); res.Header.Get("Link") != "</x>" {
			t.Errorf("got %v", res.Header)
		}
		w.WantStatus(200)
		w = p.dial(t, lined("GET / HTTP/1.0||"))
		w.WantStatus(200)
	})
}

// A large answer is sent from where it lies, a small one together with its head.
func TestServer_ResponsesOfAllSizes(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, n := range []int{0, 1, 4000, 8 << 10, 100_000, 3 << 20} {
			p := serving(t, func(x *Exchange) {
				x.Begin(200)
				_ = x.Send([]byte(strings.Repeat("x", n)))
			}, nil)
			w := p.dial(t, "")
			for range 3 {
				w.Send(lined("GET / HTTP/1.1|Host: a||"))
				if res, body := w.WantStatus(200); len(body) != n || res.ContentLength != int64(n) {
					t.Errorf("%d: got %d, %d", n, len(body), res.ContentLength)
				}
			}
		}
	})
}
