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
