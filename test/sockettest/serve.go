package sockettest

import (
	"net"
	"sync"
	"testing"
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
