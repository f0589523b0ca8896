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
	"github.com/weir-proxy/weir/proxy/frontend"
)

// enough is how long a test waits for what must happen.
const enough = 2 * time.Minute

// A testProxy is a Weir that serves: plain, and in TLS with a certificate for
// localhost that ca vouches for.
type testProxy struct {
	plain, secure string // host:port; secure has localhost as its host
	ca            string // a PEM file
}

// startPlain starts a Weir with these lines of YAML and returns its address.
func startPlain(t *testing.T, yaml string) (addr string) { return startProxy(t, yaml).plain }

// startProxy starts a Weir with these lines of YAML, until the test ends.
func startProxy(t *testing.T, yaml string) testProxy {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
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
	pair := issued(t, dir)
	certs, err := frontend.LoadCertificates([]config.Pair{pair}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s := frontend.NewServer(p, c.Listen, zerolog.Nop())
	var served sync.WaitGroup
	listen := func(serve func(net.Listener) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() {
			if err := serve(l); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		return l.Addr().String()
	}
	d := testProxy{plain: listen(s.Serve), ca: pair.Cert}
	_, port, _ := net.SplitHostPort(listen(func(l net.Listener) error { return s.ServeTLS(l, certs, nil) }))
	d.secure = "localhost:" + port
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Drain(ctx)
		served.Wait()
		p.Close()
	})
	return d
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
