package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

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

// The connection that was used last is used next.
func TestPool_LastInFirstOut(t *testing.T) {
	address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := requestOn(r); err != nil {
				return
			}
			port := c.RemoteAddr().String()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			_, _ = c.Write(append(appendChunk(nil, []byte(port)), "0\r\n\r\n"...))
		}
	})
	client := &Client{}
	p := client.NewPool(Endpoint{Network: "tcp", Address: address})
	defer p.Close()
	first, second := client.NewCall(nil), client.NewCall(nil)
	var ports [2]string
	for i, c := range []*Call{first, second} {
		c.Begin("GET", "a", "/")
		if err := p.Send(c); err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(c.Body())
		ports[i] = string(body)
	}
	first.Release()
	second.Release()
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
		p := c.client.NewPool(Endpoint{Network: "tcp", Address: address})
		var calls []*Call
		for range 4 {
			call := c.client.NewCall(nil)
			call.Begin("GET", "a", "/")
			if err := p.Send(call); err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(call.Body())
			calls = append(calls, call)
		}
		for _, call := range calls {
			call.Release()
		}
		await.Until(t, c.topic, func() bool { return p.Idle() == c.want })
		p.Close()
		if got, err := ask(t, p, "/"); got != "ok" || err != nil || p.Idle() != 0 {
			t.Errorf("after Close: %q, %v, %d idle", got, err, p.Idle())
		}
	}
}

func TestPool_DialFails(t *testing.T) {
	client := &Client{ConnectTimeout: time.Minute}
	_, err := ask(t, client.NewPool(Endpoint{Network: "tcp", Address: sockettest.ClosedAddr(t)}), "/")
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
		client := &Client{}
		p := client.NewPool(Endpoint{Network: "tcp", Address: silent, Dial: dial})
		c := client.NewCall(nil)
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
		p.Close()
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
