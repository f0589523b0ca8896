package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// unpolled hides the socket of a connection, which then cannot be polled, as on Windows.
type unpolled struct{ net.Conn }

// A connection whose socket cannot be polled is used again, unless the upstream has
// closed it or has sent bytes that nobody asked for.
func TestIdleRead_ReusesOpenConnections(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for topic, does := range map[string]func(upstream net.Conn){
			"nothing":                nil,
			"closes":                 func(c net.Conn) { c.Close() },
			"sends unexpected bytes": func(c net.Conn) { _, _ = io.WriteString(c, lined("HTTP/1.1 200 OK|Content-Length: 4||evil")) },
		} {
			conns := make(chan net.Conn, 10)
			address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
				for conns <- nc; ; {
					if _, err := requestOn(r); err != nil {
						return
					}
					_, _ = io.WriteString(nc, okAnswer)
				}
			})
			to := Endpoint{Network: "tcp", Address: address, Dial: func(_ context.Context, network, address string) (net.Conn, error) {
				nc, err := net.Dial(network, address)
				return unpolled{nc}, err
			}}
			if s, ok := t.(sockettest.Secured); ok {
				to.TLS = s.Client
			}
			p := (&Client{}).NewPool(to)
			defer p.Close()
			request := func() {
				t.Helper()
				if got, err := ask(t, p, "/"); got != "ok" || err != nil || p.Idle() != 1 {
					t.Errorf("%s: got %q, %v, %d idle", topic, got, err, p.Idle())
				}
			}
			request()
			upstream := await.Value(t, conns, "connection")
			if does != nil {
				does(upstream)
				await.Until(t, topic, func() bool { return len(p.kept()[0].idleRead) == 1 })
			}
			for range 3 {
				request()
			}
			if opened := len(conns); (opened == 0) != (does == nil) || opened > 1 {
				t.Errorf("%s: %d more connections", topic, opened)
			}
		}
	})
}

// A connection that waits unpolled has no deadline, and what waits for it ends with it.
func TestIdleRead_EndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		client := &Client{ResponseTimeout: time.Second, IdleConnTimeout: time.Hour}
		p := client.NewPool(Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
			dials++
			ours, theirs := net.Pipe()
			go func() {
				for r := bufio.NewReader(theirs); ; {
					if _, err := requestOn(r); err != nil {
						return
					}
					_, _ = io.WriteString(theirs, okAnswer)
				}
			}()
			return ours, nil
		}})
		for range 3 {
			if got, err := ask(t, p, "/"); got != "ok" || err != nil || dials != 1 {
				t.Errorf("got %q, %v, %d connections", got, err, dials)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Hour)
		if p.Idle() != 0 {
			t.Errorf("%d are idle", p.Idle())
		}
		_, _ = ask(t, p, "/")
		p.Close() // the bubble ends when all goroutines have ended
	})
}
