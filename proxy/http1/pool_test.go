package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// poolTo is a pool of connections to an origin. It ends with the test.
func poolTo(t testing.TB, client *Client, to Endpoint) *Pool {
	t.Helper()
	p := client.NewPool(to)
	t.Cleanup(p.Close)
	return p
}

// pipes are connections of which each has its other end played by upstream.
func pipes(upstream func(net.Conn)) Endpoint {
	return Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go upstream(theirs)
		return ours, nil
	}}
}

// ask makes a call of our own and returns the body of the answer.
func ask(t testing.TB, p *Pool, path string) (string, error) {
	t.Helper()
	c := p.client.NewCall(nil)
	defer c.Release()
	c.Begin("GET", "a", path)
	if err := p.Send(c); err != nil {
		return "", err
	}
	body, err := io.ReadAll(c.Body())
	return string(body), err
}

// held makes so many calls of our own at a time. Each holds its connection until it is released.
func held(t testing.TB, p *Pool, n int) (calls []*Call, bodies []string) {
	t.Helper()
	for range n {
		c := p.client.NewCall(nil)
		c.Begin("GET", "a", "/")
		if err := p.Send(c); err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(c.Body())
		calls, bodies = append(calls, c), append(bodies, string(body))
	}
	return calls, bodies
}

// release ends calls.
func release(calls []*Call) {
	for _, c := range calls {
		c.Release()
	}
}

// Idle returns the number of idle connections.
func (p *Pool) Idle() (n int) {
	for i := range p.lists {
		n += p.lists[i].len()
	}
	return n
}

// The connection that was used last is used next.
func TestPool_LastInFirstOut(t *testing.T) {
	address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		eachRequest(r, func(string) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			_, _ = c.Write(append(appendChunk(nil, []byte(c.RemoteAddr().String())), "0\r\n\r\n"...))
		})
	})
	p := poolTo(t, &Client{}, endpointOf(t, address))
	calls, ports := held(t, p, 2)
	release(calls)
	for range 3 {
		if got, err := ask(t, p, "/"); got != ports[1] || err != nil || ports[0] == ports[1] {
			t.Errorf("got %q, %v; want %q", got, err, ports[1])
		}
	}
	if p.Idle() != 2 {
		t.Errorf("%d are idle", p.Idle())
	}
}

func TestPool_Bounds(t *testing.T) {
	address, _ := answering(t, okAnswer)
	for _, c := range []struct {
		topic  string
		client *Client
		want   int
	}{
		{"not more than so many", &Client{MaxIdleConns: 2}, 2},
		{"not longer than that", &Client{IdleConnTimeout: 30 * time.Millisecond}, 0},
	} {
		p := c.client.NewPool(endpointOf(t, address))
		calls, _ := held(t, p, 4)
		release(calls)
		await.Until(t, c.topic, func() bool { return p.Idle() == c.want })
		p.Close()
		if got, err := ask(t, p, "/"); got != "ok" || err != nil || p.Idle() != 0 {
			t.Errorf("after Close: %q, %v, %d idle", got, err, p.Idle())
		}
	}
}

func TestPool_DialFails(t *testing.T) {
	_, err := ask(t, poolTo(t, &Client{ConnectTimeout: time.Minute}, endpointOf(t, sockettest.ClosedAddr(t))), "/")
	var fault *CallError
	if !errors.As(err, &fault) || fault.Phase != Dialing || !fault.Retryable("POST") {
		t.Errorf("got %v", err)
	}
}

// Abort ends dialling, and waiting.
func TestCall_Abort(t *testing.T) {
	reached := make(chan struct{}, 2)
	silent := sockettest.Upstream(t, func(_ net.Conn, r *bufio.Reader) {
		_, _ = requestOn(r)
		reached <- struct{}{}
		_, _ = io.Copy(io.Discard, r)
	})
	for _, dial := range []func(context.Context, string, string) (net.Conn, error){
		nil,
		func(ctx context.Context, _, _ string) (net.Conn, error) {
			reached <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		p := poolTo(t, &Client{}, Endpoint{Network: "tcp", Address: silent, Dial: dial})
		c := p.client.NewCall(nil)
		c.Begin("GET", "a", "/")
		done := make(chan error, 1)
		go func() { done <- p.Send(c) }()
		await.Value(t, reached, "request")
		c.Abort()
		var fault *CallError
		if err := await.Value(t, done, "end"); !errors.As(err, &fault) || !errors.Is(err, ErrAborted) || fault.Retryable("GET") {
			t.Errorf("got %v", err)
		}
		c.Release()
	}
}

// A call can be made again over another pool, with another head, and with the
// body that had been read from the client before.
func TestCall_RetryOnAnotherPool(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, seen := answering(t, okAnswer)
		for _, body := range []string{"Content-Length: 5|~|hello", "Transfer-Encoding: chunked|~|5|hello|0||"} {
			fields, content, _ := strings.Cut(body, "~|")
			p := proxyTo(t, address, nil)
			p.server.Handler = func(x *Exchange) {
				c := p.client.NewCall(x)
				defer c.Release()
				c.Begin(x.Method(), "b", "/first")
				nobody := p.client.NewPool(Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }})
				var fault *CallError
				if err := nobody.Send(c); !errors.As(err, &fault) || !fault.Retryable("POST") {
					t.Errorf("got %v", err)
				}
				c.Begin(x.Method(), "b", "/second")
				if err := p.pool.Send(c); err != nil {
					t.Error(err)
				}
				x.Begin(c.Response.Status)
				if err := x.Relay(c); err != nil {
					t.Error(err)
				}
			}
			w := p.dial(t, lined("POST / HTTP/1.1|Host: a|"+fields+"|"+content))
			w.WantStatus(200)
			if got, want := await.Value(t, seen, "request"), lined("POST /second HTTP/1.1|Host: b|"+fields+"|"+content); got != want {
				t.Errorf("got %q; want %q", got, want)
			}
		}
	})
}

// A connection is used again until a second before the upstream said that it closes it.
func TestPool_ExpiresBeforeTheUpstreamCloses(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"":                                   30 * time.Second, // IdleConnTimeout
		"Keep-Alive: timeout=5, max=100|":    4 * time.Second,
		"keep-alive: max=5,\tTimeout=60|":    30 * time.Second,
		"Keep-Alive: timeout=2|":             time.Second,
		"Keep-Alive: timeout=1|":             0,
		"Keep-Alive: timeout=0|":             0,
		"Keep-Alive: timeout=x, timeout=10|": 9 * time.Second,
		"Keep-Alive: 300|":                   30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := poolTo(t, &Client{}, pipes(func(far net.Conn) {
				defer far.Close()
				eachRequest(bufio.NewReader(far), func(string) {
					_, _ = io.WriteString(far, lined("HTTP/1.1 200 OK|"+field+"Content-Length: 1||x"))
				})
			}))
			calls, _ := held(t, p, 1)
			calls[0].Response.Fields.StripHopByHop() // as a proxy does
			release(calls)
			if p.Idle() != 1 {
				t.Fatal("the connection was not kept")
			}
			u := p.kept()[0]
			if reused := want - time.Millisecond; want > 0 && u.expired(p.client.now()+reused) || !u.expired(p.client.now()+max(want, 1)) {
				t.Errorf("%s: not used for %v", strings.TrimSuffix(field, "|"), want)
			}
		})
	}
}

// kept returns the idle connections.
func (p *Pool) kept() (all []*clientConn) {
	for i := range p.lists {
		l := &p.lists[i]
		l.mu.Lock()
		all = append(all, l.idle...)
		l.mu.Unlock()
	}
	return all
}

// The lists of several processors together are one pool: no connection is dialled while another list has
// one, and they hold no more than so many.
func TestPool_ListsOfSeveralProcessors(t *testing.T) {
	address, _ := answering(t, okAnswer)
	const most = 8
	dialled := 0
	p := poolTo(t, &Client{MaxIdleConns: most, stripes: stripe.NewFor(4)}, Endpoint{Network: "tcp", Address: address, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled++
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	round := func(n int) {
		t.Helper()
		calls, _ := held(t, p, n)
		release(calls)
	}
	round(most + 2)
	if got := p.Idle(); got != most {
		t.Errorf("%d connections are kept; want %d", got, most)
	}
	all := p.kept()
	for range all {
		p.pop()
	}
	for i, u := range all { // as if each processor had used some of them
		p.push(i%4, u)
	}
	round(most)
	if got := len(p.kept()); got != most || dialled != most+2 {
		t.Errorf("%d connections are kept, of %d that were dialled; want %d of %d", got, dialled, most, most+2)
	}
	p.Close()
	round(most)
	if got := p.Idle(); got != 0 {
		t.Errorf("%d connections are kept after Close", got)
	}
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 4, 64: 64} {
		if got := stripesOf(processors, 512).Count(); got != want {
			t.Errorf("%d lists for %d processors; want %d", got, processors, want)
		}
	}
}
