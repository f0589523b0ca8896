package sockettest

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// Serve runs serve with a listener on a free port of 127.0.0.1, as a goroutine of running,
// and returns the address. The test fails if serve returns an error.
func Serve(t testing.TB, running *sync.WaitGroup, serve func(net.Listener) error) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// Upstream listens on a free port of 127.0.0.1, over TLS in a Secured test, and returns the address. Each connection is
// given to serve, with what is read from it, and closed when that returns.
func Upstream(tb testing.TB, serve func(c net.Conn, r *bufio.Reader)) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(await.Limit))
			c = ServerSide(tb, c)
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	return l.Addr().String()
}

// Accept has serve serve each connection of l, until l is closed.
func Accept(l net.Listener, serve func(net.Conn)) error {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		go serve(c)
	}
}
