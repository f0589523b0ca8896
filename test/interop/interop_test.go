// Package interop lets clients and servers that were written elsewhere talk to
// each other through Weir.
package interop

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// enough is how long a test waits for what must happen.
const enough = 20 * time.Second

// through starts a Weir with these lines of YAML and returns its address.
func through(t *testing.T, yaml string) (addr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(context.Background(), proxy.Options{
		Path: path, Config: c, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(),
		Store: limiter.NewMemory(limiter.MemoryOptions{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := proxy.NewServer(p, c.Listen, zerolog.Nop())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Drain(ctx)
		served.Wait()
		p.Close()
	})
	return l.Addr().String()
}

// serve starts a server on a free port until the test ends.
func serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: enough}
	var served sync.WaitGroup
	served.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Close(); served.Wait() })
	return l.Addr().String()
}
