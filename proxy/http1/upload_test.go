package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// Bodies of all sizes arrive as they were, in both framings, and the connections
// are used again.
func TestUpload_AllSizes(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, n := range []int{1, 100, 8000, 8192, 40_000, 1 << 20} {
			body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
			connections := 0
			address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
				connections++
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					got, err := io.ReadAll(req.Body)
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%5t", string(got) == body && err == nil)
				}
			})
			p := proxyTo(t, address, nil)
			w := p.dial(t, "")
			for range 3 {
				for _, said := range []string{
					fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", n, body),
					fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, body),
				} {
					go func() { _, _ = io.WriteString(w.Conn, said) }()
					if _, got := w.WantStatus(200); strings.TrimSpace(got) != "true" {
						t.Fatalf("%d bytes did not arrive", n)
					}
				}
			}
			if connections != 1 {
				t.Errorf("%d bytes: %d connections were made", n, connections)
			}
		}
	})
}

// An answer that comes before the body has been sent is brought to the client at
// once; neither connection is used again.
func TestUpload_EarlyResponse(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_, _ = io.WriteString(c, lined("HTTP/1.1 413 Content Too Large|Content-Length: 2||no"))
			_, _ = io.Copy(io.Discard, r)
		})
		p := proxyTo(t, address, nil)
		w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Content-Length: 1000000||begin"))
		if res, body := w.WantStatus(413); body != "no" || !res.Close {
			t.Errorf("got %q, close %t", body, res.Close)
		}
		w.WantClosed()
		if p.pool.Idle() != 0 {
			t.Error("the upstream's connection was kept, and owes a body")
		}
	})
}

// Both directions may stream at the same time.
func TestUpload_Bidirectional(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
			req, _ := http.ReadRequest(r)
			_, _ = io.WriteString(c, lined("HTTP/1.1 200 OK|Transfer-Encoding: chunked||"))
			b := make([]byte, 1)
			for {
				if _, err := io.ReadFull(req.Body, b); err != nil {
					break
				}
				fmt.Fprintf(c, "1\r\n%s\r\n", b)
			}
			_, _ = io.WriteString(c, lined("0||"))
		})
		p := proxyTo(t, address, nil)
		w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||"))
		w.Send(lined("1|a|"))
		res, err := http.ReadResponse(w.Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		for _, want := range "abc" {
			if want != 'a' {
				w.Send(lined("1|" + string(want) + "|"))
			}
			if _, err := io.ReadFull(res.Body, b); err != nil || b[0] != byte(want) {
				t.Fatalf("got %q, %v; want %q", b, err, want)
			}
		}
		w.Send(lined("0||"))
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
			t.Errorf("got %q, %v", rest, err)
		}
	})
}

// An expectation is a request with Expect: 100-continue, and how an upstream answers it.
type expectation struct {
	topic, first, then string
	interim            []int
	status             int
	refused            bool
}

// 100 reaches the client once, whoever says it and how often.
func TestUpload_Expect(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, e := range []expectation{
			{"upstream says it", "HTTP/1.1 100 Continue||", "HTTP/1.1 200 OK|Content-Length: 0||", []int{100}, 200, false},
			{"upstream says it twice", "HTTP/1.1 100 Continue||HTTP/1.1 100 Continue||", "HTTP/1.1 200 OK|Content-Length: 0||", []int{100}, 200, false},
			{"upstream never says it", "", "HTTP/1.1 200 OK|Content-Length: 0||", []int{100}, 200, false},
			{"hints come first", "HTTP/1.1 103 Early Hints|Connection: x|X: 1||HTTP/1.1 100 Continue||", "HTTP/1.1 200 OK|Content-Length: 0||", []int{103, 100}, 200, false},
			{"refused", "HTTP/1.1 403 Forbidden|Content-Length: 0||", "", nil, 403, true},
		} {
			// A connection ends as well if the answer overtakes the end of the upload by
			// uploadEndWait, which is up to the machine.
			await.Until(t, fmt.Sprintf("%s: close is %t", e.topic, e.refused), func() bool { return e.asked(t) == e.refused })
		}
	})
}

// asked sends the request and reports whether its connection ends with the answer.
func (e expectation) asked(t testing.TB) (closes bool) {
	t.Helper()
	address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil || req.Header.Get("Expect") == "" {
			return
		}
		_, _ = io.WriteString(nc, lined(e.first))
		if body, err := io.ReadAll(req.Body); err == nil && string(body) == "hi" {
			_, _ = io.WriteString(nc, lined(e.then))
		}
	})
	p := proxyTo(t, address, func(p *proxy) {
		p.client.ExpectContinueTimeout = soon
		if e.first == "" {
			p.client.ExpectContinueTimeout = 20 * time.Millisecond
		}
	})
	w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 2||"))
	defer w.Close()
	for _, want := range e.interim {
		res, _ := w.WantStatus(want)
		if len(res.Header) > 0 {
			t.Errorf("%s: %d has %v", e.topic, want, res.Header)
		}
		if want == 100 {
			w.Send("hi")
		}
	}
	res, _ := w.WantStatus(e.status)
	if e.refused {
		w.Send("hi" + lined("GET / HTTP/1.1|Host: a||"))
		w.WantClosed()
		if p.pool.Idle() != 0 {
			t.Errorf("%s: the upstream's connection was kept, and owes a body", e.topic)
		}
	}
	return res.Close
}

// Interim answers do not use up the request: the final answer is still its own.
func TestForward_InterimResponses(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, _ := answering(t, lined("HTTP/1.1 103 Early Hints|Link: </x>|Connection: X-A|X-A: 1||")+okAnswer)
		p := proxyTo(t, address, nil)
		w := p.dial(t, "")
		for range 3 {
			w.Send(lined("GET / HTTP/1.1|Host: a||"))
			if res, _ := w.WantStatus(103); res.Header.Get("Link") != "</x>" || len(res.Header) != 1 {
				t.Errorf("got %v", res.Header)
			}
			w.WantStatus(200)
		}
		old := p.dial(t, lined("GET / HTTP/1.0|Host: a||"))
		old.WantStatus(200)
	})
}

// A tunnel begins with what both have sent too early.
func TestUpgrade_Tunnel(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
			req, err := http.ReadRequest(r)
			if err != nil || req.Header.Get("Upgrade") != "websocket" || r.Buffered() > 0 {
				t.Errorf("got %v, %v, and %d bytes behind it", req, err, r.Buffered())
				return
			}
			_, _ = io.WriteString(c, lined("HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: WebSocket|Sec-WebSocket-Accept: x||hello "))
			said, _ := io.ReadAll(r)
			_, _ = c.Write(said)
		})
		p := proxyTo(t, address, nil)
		w := p.dial(t, lined("GET / HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: websocket||")+"early ")
		res, err := http.ReadResponse(w.Reader, nil)
		if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Sec-WebSocket-Accept") != "x" {
			t.Fatalf("got %v, %v", res, err)
		}
		w.Send("late")
		sendsNoMore(w.Conn)
		if got, err := io.ReadAll(w.Reader); string(got) != "hello early late" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if p.pool.Idle() != 0 {
			t.Error("the connection was kept")
		}
	})
}

// Unless the upstream changes the protocol, what follows the request is the next
// one, and nothing of it has been sent on before.
func TestUpgrade_Refused(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, answer := range []string{"HTTP/1.1 200 OK|Connection: Upgrade|Upgrade: websocket|Content-Length: 2||ok", "HTTP/1.1 426 Upgrade Required|Content-Length: 2||ok"} {
			address, seen := answering(t, lined(answer))
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: websocket||GET /admin HTTP/1.1|Host: a||"))
			for _, path := range []string{"/", "/admin"} {
				if res, body := w.ReadResponse("GET"); body != "ok" || res.Header.Get("Upgrade") != "" {
					t.Errorf("got %v %q", res, body)
				}
				if got := await.Value(t, seen, "request"); !strings.HasPrefix(got, "GET "+path+" ") || strings.Count(got, "GET") != 1 {
					t.Errorf("got %q", got)
				}
			}
		}
	})
}

// A 101 to another protocol than the one that was asked for is no answer.
func TestUpgrade_ToAnotherProtocol(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, fields := range []string{"Connection: Upgrade|Upgrade: h2c|", "Upgrade: websocket|", "Connection: Upgrade|", "Connection: Upgrade|Upgrade: websocket|Upgrade: x|"} {
			address, _ := answering(t, lined("HTTP/1.1 101 Switching Protocols|"+fields+"|"))
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: websocket||"))
			w.WantStatus(502)
			var fault *CallError
			if err := await.Value(t, p.faults, "fault"); !errors.As(err, &fault) || !errors.Is(err, ErrUnexpectedUpgrade) {
				t.Errorf("%q: got %v", fields, err)
			}
		}
	})
}

// A body that had to be read before, for a key in it, is sent on as it came.
func TestUpload_GivenBody(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, seen := answering(t, okAnswer)
		p := proxyTo(t, address, nil)
		give := true
		p.change = func(x *Exchange, c *Call) {
			body, err := io.ReadAll(x.Body())
			if err != nil {
				t.Error(err)
			}
			if give {
				c.SetBody(body)
			}
		}
		large := strings.Repeat("x", 100_000)
		for _, body := range []string{
			"Content-Length: 5||hello", "Transfer-Encoding: chunked||5|hello|0|X-Sum: 1||", "Transfer-Encoding: chunked||0||",
			"Content-Length: 100000||" + large,
		} {
			said := lined("POST / HTTP/1.1|Host: a|" + body)
			w := p.dial(t, said)
			w.WantStatus(200)
			if got := await.Value(t, seen, "request"); got != said {
				t.Errorf("got %.200q; want %.200q", got, said)
			}
		}
		give = false // forgotten: nothing is sent rather than something else
		w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Content-Length: 5||hello"))
		w.WantStatus(500)
		if err := await.Value(t, p.faults, "fault"); !errors.Is(err, ErrOutgoing) {
			t.Errorf("got %v", err)
		}
	})
}

// uploading makes a call with a body over a connection that has been used before, on
// which the test plays the upstream. It has sent the head, and begun with the body.
func uploading(t *testing.T, body io.Reader, answer func(net.Conn)) *Call {
	t.Helper()
	client := &Client{ResponseTimeout: 10 * time.Second, BodyTimeout: 4 * time.Second}
	pool := poolTo(t, client, pipes(answer))
	c := client.NewCall(nil)
	t.Cleanup(c.Release)
	c.SetSource(Source{Reader: body, Length: 5, Stop: func() {}})
	c.Begin("POST", "a", "/")
	if err := c.encodeRequest(); err != nil {
		t.Fatal(err)
	}
	u, fault := pool.dial(c)
	if fault != nil {
		t.Fatal(fault)
	}
	u.reused = true
	u.setReadDeadline(client.ResponseTimeout)
	c.pool, c.conn, c.in.from, c.in.pool = pool, u, u.net, &client.buffers
	if _, err := u.net.Write(c.out.buf); err != nil {
		t.Fatal(err)
	}
	c.startUpload()
	return c
}

// A body that fails at once ends the wait for an answer that has not begun yet: the
// upstream waits for the rest of the body, and would wait for ever.
func TestUpload_FailsBeforeResponseIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		client.CloseWithError(errors.New("no body"))
		c := uploading(t, body, func(upstream net.Conn) { _, _ = io.Copy(io.Discard, upstream) })
		synctest.Wait() // the upload has failed
		began := time.Now()
		if fault := c.awaitResponse(); fault == nil || fault.Phase != ReadingRequestBody || time.Since(began) > 0 {
			t.Errorf("%v after %v; want the fault of the body at once", fault, time.Since(began))
		}
	})
}

// The same for an answer that has begun: there will be no more of it.
func TestUpload_FailsWhileResponseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		c := uploading(t, body, func(upstream net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(upstream))
			_, _ = io.WriteString(upstream, lined("HTTP/1.1 200 OK|Content-Length: 4||"))
			_, _ = io.Copy(io.Discard, upstream)
		})
		if fault := c.awaitResponse(); fault != nil {
			t.Fatal(fault)
		}
		client.CloseWithError(errors.New("no body"))
		synctest.Wait() // the upload has failed
		began := time.Now()
		_, err := c.Body().Next()
		if fault := c.responseBodyError(err); fault.Phase != ReadingRequestBody || time.Since(began) > 0 {
			t.Errorf("%v after %v; want the fault of the body at once", fault, time.Since(began))
		}
	})
}
