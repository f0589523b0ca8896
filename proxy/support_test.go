package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// enough is how long a test waits for what must happen. It is a failure to reach
// it.
const enough = await.Limit

// A testServer is a testProxy that listens.
type testServer struct {
	*testProxy
	T      *testing.T
	server *frontend.Server
	addr   string
	client *tls.Config // of clients, if they speak TLS
	served sync.WaitGroup
}

// startServer makes a proxy and lets it listen, as the file says but for the address.
func startServer(t *testing.T, yaml string, change ...func(*Options)) *testServer {
	t.Helper()
	f := &testServer{testProxy: newProxy(t, yaml, change...), T: t}
	return f.listen(f.Proxy)
}

// listen lets t listen with this handler until the test ends.
func (t *testServer) listen(h frontend.Handler) *testServer {
	t.Helper()
	t.server = frontend.NewServer(h, t.current.Load().config.Listen, zerolog.Nop())
	t.addr = sockettest.Serve(t, &t.served, t.server.Serve)
	t.Cleanup(t.drain)
	return t
}

// drain ends the server, and waits until the last request is over.
func (t *testServer) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	t.server.Drain(ctx)
	t.served.Wait()
}

// dial connects a client that says these bytes.
func (t *testServer) dial(said string) *sockettest.Client {
	t.Helper()
	if t.client != nil {
		return sockettest.Dial(sockettest.Secured{T: t.T, Client: t.client}, t.addr, said)
	}
	return sockettest.Dial(t.TB, t.addr, said)
}

// A transport is how clients connect to a testServer.
type transport func(f *testServer)

// overEachTransport runs a test over plain connections, and over TLS.
func overEachTransport(t *testing.T, test func(t *testing.T, over transport)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t, plainTransport) })
	t.Run("tls", func(t *testing.T) { test(t, tlsTransport) })
}

func plainTransport(*testServer) {}

func tlsTransport(f *testServer) { f.addr, f.client = f.listenTLS() }

// opened is the testServer, reached that way.
func (over transport) opened(t *testing.T, yaml string, change ...func(*Options)) *testServer {
	t.Helper()
	f := startServer(t, yaml, change...)
	over(f)
	return f
}

// startUpstream starts an upstream for the test.
func startUpstream(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// forwardYAML is a config of one route for everything, to url, with more lines
// before it and more fields of the route.
func forwardYAML(url, before, fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return before + "\nroutes:\n  - {name: all, match: {path: /*}, upstream: '" + url + "'" + fields + "}\n"
}

// writeForever writes to w until it fails.
func writeForever(w io.Writer) error {
	piece := []byte(strings.Repeat("x", 32<<10))
	for {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}
