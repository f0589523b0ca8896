package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/sockettest"
)

// piped runs a server over one connection in a bubble of its own time, and gives
// the client's end to play.
func piped(t *testing.T, handle Handler, play func(t *testing.T, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Handler: handle, Timeouts: Timeouts{Header: 10 * time.Second, Body: 20 * time.Second, Write: 30 * time.Second, Idle: time.Minute}}
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { s.ServeConn(theirs); close(done) }()
		play(t, ours)
		ours.Close()
		<-done
		s.Close()
		time.Sleep(time.Minute) // whoever still plays notices
	})
}

// heard reads until the other end closes, and tells how long that took.
func heard(c net.Conn) (string, time.Duration) {
	began := time.Now()
	said, _ := io.ReadAll(c)
	return string(said), time.Since(began)
}

// within reports whether d is the wanted time or a little more: deadlines are set
// coarsely, but never too early.
func within(d, want time.Duration) bool { return d >= want && d <= want+want/8+time.Second }

func TestTimeout_Header(t *testing.T) {
	for _, said := range []string{"", "G", "GET / HTTP/1.1\r\nHost: a\r\n"} {
		piped(t, says, func(t *testing.T, c net.Conn) {
			_, _ = io.WriteString(c, said)
			got, took := heard(c)
			if !within(took, 10*time.Second) || (said != "") != strings.HasPrefix(got, "HTTP/1.1 408") {
				t.Errorf("%q: got %q after %v", said, got, took)
			}
		})
	}
}

// A head that begins late in the idle time has the whole timeout of a head.
func TestTimeout_HeaderAfterIdleTime(t *testing.T) {
	piped(t, says, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("GET / HTTP/1.1|Host: a||"))
		_, _ = c.Read(make([]byte, 1000))
		time.Sleep(59 * time.Second)
		_, _ = io.WriteString(c, "GET / HT")
		if got, took := heard(c); !within(took, 10*time.Second) || !strings.HasPrefix(got, "HTTP/1.1 408") {
			t.Errorf("got %q after %v", got, took)
		}
	})
}

// A head has its timeout even if its first bytes came with the body before it, and the
// read of that body was canceled at this moment.
func TestTimeout_HeaderAfterCanceledRead(t *testing.T) {
	for _, timeouts := range []Timeouts{{Header: 10 * time.Second, Idle: time.Minute}, {Idle: 10 * time.Second}, {}} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			nc := &canceledRead{Conn: theirs}
			s := &Server{Timeouts: timeouts, Handler: func(x *Exchange) {
				nc.cancel = x.CancelBodyRead
				reads(x)
				nc.cancel = nil
			}}
			defer s.Close()
			go s.ServeConn(nc)
			_, _ = io.WriteString(ours, lined("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||"))
			_, _ = io.WriteString(ours, lined("3|abc|0||GET / HT"))
			if n, err := ours.Read(make([]byte, 1000)); n == 0 {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			go func() { _, _ = io.WriteString(ours, lined("TP/1.1|Host: a||")) }()
			if got, err := http.ReadResponse(bufio.NewReader(ours), nil); err != nil || got.StatusCode != 200 {
				t.Errorf("%v: got %v, %v", timeouts, got, err)
			}
			ours.Close()
		})
	}
}

// A canceledRead is a connection on which the read of a body is canceled after it has
// got its bytes and before it returns.
type canceledRead struct {
	net.Conn
	cancel func() // nil outside of handlers
}

func (c *canceledRead) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cancel != nil {
		c.cancel()
	}
	return n, err
}

// A header must be whole in time, however its bytes are spread.
func TestTimeout_HeaderByteByByte(t *testing.T) {
	piped(t, says, func(t *testing.T, c net.Conn) {
		began := time.Now()
		for {
			if _, err := io.WriteString(c, "G"); err != nil {
				break
			}
			if time.Sleep(time.Second); time.Since(began) > time.Minute {
				t.Fatal("it waits for ever")
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if n, _ := c.Read(make([]byte, 1000)); n > 0 {
				break
			}
		}
		if took := time.Since(began); !within(took, 10*time.Second) {
			t.Errorf("got %v", took)
		}
	})
}

func TestTimeout_Idle(t *testing.T) {
	piped(t, says, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("GET / HTTP/1.1|Host: a||"))
		_, _ = c.Read(make([]byte, 1000))
		if got, took := heard(c); !within(took, time.Minute) || got != "" {
			t.Errorf("got %q after %v", got, took)
		}
	})
}

func TestTimeout_BodyWithoutProgress(t *testing.T) {
	var read error
	piped(t, func(x *Exchange) {
		_, read = io.ReadAll(x.Body())
		_ = x.sendText(408, "late")
	}, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("POST / HTTP/1.1|Host: a|Content-Length: 100000||hello"))
		got, took := heard(c)
		synctest.Wait()
		if !within(took, 20*time.Second) || !strings.HasPrefix(got, "HTTP/1.1 408") || !timedOut(read) {
			t.Errorf("got %q after %v, %v", got, took, read)
		}
	})
}

// A body that always makes some progress, but too little, is cut as well.
func TestTimeout_BodyTooSlow(t *testing.T) {
	piped(t, func(x *Exchange) {
		_, _ = io.ReadAll(x.Body())
		_ = x.sendText(408, "late")
	}, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("POST / HTTP/1.1|Host: a|Content-Length: 100000||"))
		began := time.Now()
		go func() {
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(5 * time.Second)
			}
		}()
		if got, _ := heard(c); !strings.HasPrefix(got, "HTTP/1.1 408") || time.Since(began) > 30*time.Second {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
	})
}

// Once the answer has begun, the two may talk at whatever pace they like.
func TestTimeout_BodyAfterResponseStarted(t *testing.T) {
	piped(t, func(x *Exchange) {
		x.Begin(200)
		_ = x.StartBody(Framing{Chunked, -1})
		_ = x.Flush()
		_, _ = io.ReadAll(x.Body())
		_ = x.End()
	}, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("POST / HTTP/1.1|Host: a|Content-Length: 2||"))
		_, _ = c.Read(make([]byte, 1000))
		for range 2 {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(c, "x")
		}
		b := make([]byte, 100)
		if n, err := c.Read(b); string(b[:n]) != lined("0||") || err != nil {
			t.Errorf("got %q, %v", b[:n], err)
		}
	})
}

// A client that takes nothing of its answer is cut.
func TestTimeout_Write(t *testing.T) {
	var sent error
	var took time.Duration
	piped(t, func(x *Exchange) {
		began := time.Now()
		x.Begin(200)
		sent = x.Send(make([]byte, 1<<20))
		took = time.Since(began)
	}, func(t *testing.T, c net.Conn) {
		_, _ = io.WriteString(c, lined("GET / HTTP/1.1|Host: a||"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !timedOut(sent) || !within(took, 30*time.Second) {
			t.Errorf("got %v after %v", sent, took)
		}
	})
}

// sent makes a call over a connection that the test plays the upstream on.
func sent(t *testing.T, c *Client, answer func(net.Conn)) (*CallError, time.Duration) {
	t.Helper()
	pool := poolTo(t, c, pipes(answer))
	call := c.NewCall(nil)
	defer call.Release()
	call.Begin("GET", "a", "/")
	began := time.Now()
	err := pool.Send(call)
	if err == nil {
		for err == nil {
			_, err = call.Body().Next()
		}
		err = call.responseBodyError(err)
	}
	var fault *CallError
	if !errors.As(err, &fault) {
		t.Fatalf("got %v; want a fault", err)
	}
	return fault, time.Since(began)
}

func TestTimeout_Upstream(t *testing.T) {
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 1000)) }
	for _, c := range []struct {
		topic  string
		answer func(net.Conn)
		phase  Phase
		want   time.Duration
	}{
		{"no answer", func(c net.Conn) { read(c) }, SendingRequest, 10 * time.Second},
		{"half a head", func(c net.Conn) { read(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nA:") }, SendingRequest, 10 * time.Second},
		{"request not taken", func(net.Conn) {}, SendingRequest, 10 * time.Second},
		{"each interim answer starts it anew", func(c net.Conn) {
			read(c)
			for range 5 {
				_, _ = io.WriteString(c, lined("HTTP/1.1 103 Early Hints||"))
				time.Sleep(3 * time.Second)
			}
		}, SendingRequest, 22 * time.Second},
		{"half a body", func(c net.Conn) { read(c); _, _ = io.WriteString(c, lined("HTTP/1.1 200 OK|Content-Length: 5||h")) }, ReadingResponseBody, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			fault, took := sent(t, &Client{ResponseTimeout: 10 * time.Second, BodyTimeout: 4 * time.Second}, c.answer)
			if fault.Phase != c.phase || !timedOut(fault) || !within(took, c.want) || fault.Retryable("GET") {
				t.Errorf("%s: got %v after %v", c.topic, fault, took)
			}
			time.Sleep(time.Minute)
		})
	}
}

// What follows 100 Continue at once does not leave the response the short time in which
// 100 Continue was waited for.
func TestTimeout_AfterContinue(t *testing.T) {
	for _, more := range []string{"HTTP/1.1 100 Continue||", "HTTP/1.1 103 Early Hints||", "HTTP/1."} {
		synctest.Test(t, func(t *testing.T) {
			call, err := callOver(t, "100-continue", func(c net.Conn) {
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c, lined("HTTP/1.1 100 Continue||"+more))
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(2 * time.Second) // less than the timeout for responses
				final := lined("HTTP/1.1 200 OK|Content-Length: 0||")
				_, _ = io.WriteString(c, strings.TrimPrefix(final, strings.TrimSuffix(more, "|")))
			})
			if err != nil || call.Response.Status != 200 {
				t.Errorf("%s after 100: status %d, %v", more, call.Response.Status, err)
			}
		})
	}
}

// An upstream may send any number of interim responses, before and after the body: the
// client gets the first hundred and the final response.
func TestForward_ManyInterimResponses(t *testing.T) {
	const hints = 50_000
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, expect := range []string{"", "Expect: 100-continue|"} {
			address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
				_, _ = io.WriteString(c, strings.Repeat(lined("HTTP/1.1 103 Early Hints|X: y||"), hints))
				if expect != "" {
					_, _ = io.WriteString(c, lined("HTTP/1.1 100 Continue||"))
				}
				if req, err := http.ReadRequest(r); err == nil {
					_, _ = io.ReadAll(req.Body)
				}
				_, _ = io.WriteString(c, lined(okAnswer))
			})
			w := proxyTo(t, address, nil).dial(t, lined("POST / HTTP/1.1|Host: a|"+expect+"Content-Length: 2||"))
			if expect == "" {
				w.Send("hi")
			}
			got := map[int]int{}
			for status := 0; status < 200; got[status]++ {
				res, err := http.ReadResponse(w.Reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				if status = res.StatusCode; status == 100 {
					w.Send("hi")
				}
				_, _ = io.ReadAll(res.Body)
			}
			if got[103] != 100 || got[200] != 1 {
				t.Errorf("%s: got %v; want 100 times 103 and 200", expect, got)
			}
		}
	})
}

// callOver sends a POST with a body of two bytes to an upstream that is a function, on a
// virtual clock.
func callOver(t *testing.T, expect string, upstream func(net.Conn)) (*Call, error) {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		upstream(far)
	}()
	t.Cleanup(func() {
		near.Close()
		far.Close()
		<-done
	})
	client := &Client{ResponseTimeout: 3 * time.Second}
	pool := client.NewPool(Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
	t.Cleanup(pool.Close)
	call := client.NewCall(nil)
	t.Cleanup(call.Release)
	call.SetSource(Source{Reader: strings.NewReader("hi"), Length: 2, Expects: expect != ""})
	h := call.Begin("POST", "a", "/")
	if expect != "" {
		h.Add("Expect", expect)
	}
	return call, pool.Send(call)
}

// Each interim response restarts the timeout, up to ten times it in all.
func TestTimeout_InterimResponsesRestartIt(t *testing.T) {
	for name, c := range map[string]struct {
		send    func(net.Conn)
		want    int
		timeout time.Duration
	}{
		"five in five seconds":    {processing(5), 200, 5 * time.Second},
		"29 in 29 seconds":        {processing(29), 200, 29 * time.Second},
		"without end":             {processing(1 << 30), 0, 30 * time.Second},
		"one, and then nothing":   {func(c net.Conn) { drain(c); _, _ = io.WriteString(c, lined("HTTP/1.1 102 Processing||")) }, 0, 3 * time.Second},
		"as fast as they go, and": {func(c net.Conn) { drain(c); forever(c) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				call, err := callOver(t, "", c.send)
				if c.want == 0 && c.timeout > 0 && !timedOut(err) || c.timeout == 0 && !errors.Is(err, ErrTooManyInterim) || c.want != 0 && (err != nil || call.Response.Status != c.want) {
					t.Errorf("got %d, %v; want %d", call.Response.Status, err, c.want)
				}
				if took := time.Since(began); took < c.timeout || took > c.timeout+time.Second {
					t.Errorf("after %v; want %v", took, c.timeout)
				}
			})
		})
	}
}

// drain reads the request.
func drain(c net.Conn) *bufio.Reader {
	r := bufio.NewReader(c)
	if req, err := http.ReadRequest(r); err == nil {
		_, _ = io.ReadAll(req.Body)
	}
	return r
}

// processing sends 102 each second n times, and then 200.
func processing(n int) func(net.Conn) {
	return func(c net.Conn) {
		drain(c)
		for range n {
			time.Sleep(time.Second) // of the virtual clock
			if _, err := io.WriteString(c, lined("HTTP/1.1 102 Processing||")); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, lined(okAnswer))
	}
}

// forever sends 102 until the connection is closed.
func forever(c net.Conn) {
	long := lined("HTTP/1.1 102 Processing|X: " + strings.Repeat("y", 4000) + "||")
	for {
		if _, err := io.WriteString(c, long); err != nil {
			return
		}
	}
}

// The body is sent when 100 Continue has not come in time, even if a part of it has come,
// or other interim responses come without end.
func TestContinue_IsNotAwaitedForLong(t *testing.T) {
	for name, upstream := range map[string]func(net.Conn, *bufio.Reader){
		"half a 100": func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Con")
			_, _ = r.Peek(2) // the body
			_, _ = io.WriteString(c, lined("tinue||"))
		},
		"hints each 100 ms": func(c net.Conn, r *bufio.Reader) {
			body := make(chan struct{})
			go func() {
				_, _ = r.Peek(2)
				close(body)
			}()
			for {
				select {
				case <-body:
					return
				case <-time.After(100 * time.Millisecond):
					_, _ = io.WriteString(c, lined("HTTP/1.1 103 Early Hints||"))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				call, err := callOver(t, "100-continue", func(c net.Conn) {
					r := bufio.NewReader(c)
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					upstream(c, r)
					_, _ = io.WriteString(c, lined(okAnswer))
				})
				if err != nil || call.Response.Status != 200 {
					t.Errorf("got %d, %v", call.Response.Status, err)
				}
				if took := time.Since(began); took < time.Second || took > 2*time.Second {
					t.Errorf("the body was sent after %v; want a second", took)
				}
			})
		})
	}
}
