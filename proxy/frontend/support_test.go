package frontend

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/sockettest"
	"github.com/weir-proxy/weir/test/weirtest"
)

const (
	// enough is how long a test waits for what must happen. It is a failure to reach
	// it.
	enough = await.Limit
	// plainly is a request of HTTP/1.1.
	plainly = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
)

// A testServer is a server that listens.
type testServer struct {
	*testing.T
	server *Server
	addr   string
	serve  func(net.Listener) error // the server's own for this transport
	client *tls.Config              // of clients, if they speak TLS
	log    logtest.Log
	served sync.WaitGroup
}

// A transport is how clients connect to a testServer.
type transport func(f *testServer)

// overEachTransport runs a test over plain connections, and over TLS.
func overEachTransport(t *testing.T, test func(t *testing.T, over transport)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t, plainTransport) })
	t.Run("tls", func(t *testing.T) { test(t, tlsTransport) })
}

func plainTransport(f *testServer) { f.serve = f.server.Serve }

func tlsTransport(f *testServer) {
	certs, client := f.certificates()
	f.client = client
	f.serve = func(l net.Listener) error { return f.server.ServeTLS(l, certs, nil) }
}

// bounds are what a file says of listen.
func bounds(t testing.TB, listen string) config.Listen {
	t.Helper()
	return weirtest.Load(t, "listen: {"+listen+"}\nroutes: [{match: {path: /}, respond: {body: a}}]\n").Listen
}

// startServer lets h listen as listen says, in the clear, until the test ends.
func startServer(t *testing.T, listen string, h http.Handler) *testServer {
	t.Helper()
	return transport(plainTransport).startServer(t, listen, h)
}

// startServer lets h listen over this transport as listen says, until the test ends.
func (over transport) startServer(t *testing.T, listen string, h http.Handler) *testServer {
	t.Helper()
	f := &testServer{T: t}
	f.server = newTestServer(h, bounds(t, listen), zerolog.New(&f.log))
	over(f)
	f.addr = sockettest.Serve(f, &f.served, f.serve)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		f.server.Drain(ctx)
		f.served.Wait()
	})
	return f
}

// waitForLog waits for a line of the log.
func (t *testServer) waitForLog(message string) {
	t.Helper()
	await.Until(t.T, "line "+message, func() bool { return strings.Contains(t.log.String(), `"`+message+`"`) }, &t.log)
}

// dial connects a client that says these bytes.
func (t *testServer) dial(said string) *sockettest.Client {
	t.Helper()
	if t.client != nil {
		return sockettest.Dial(sockettest.Secured{T: t.T, Client: t.client}, t.addr, said)
	}
	return sockettest.Dial(t.T, t.addr, said)
}

// A receivedRequest is what a handler was asked.
type receivedRequest struct {
	Proto, Peer, Body string
	TLS               bool
}

// echo answers with what it is asked.
func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		json.NewEncoder(w).Encode(receivedRequest{r.Proto, host, string(body), r.TLS != nil})
	})
}

// newTestServer serves a handler of net/http by both protocols.
func newTestServer(h http.Handler, c config.Listen, log zerolog.Logger) *Server {
	if own, ok := h.(Handler); ok {
		return NewServer(own, c, log)
	}
	s := newServer(func(x *http1.Exchange) { serveNetHTTP1(x, h) }, c, log)
	s.setHTTP2(netHTTP2{h})
	return s
}

// serveNetHTTP1 serves HTTP/1.1 by a handler of net/http.
func serveNetHTTP1(x *http1.Exchange, h http.Handler) {
	d, w := new(http1.Duplex), &streamWriter{header: http.Header{}}
	d.Open(x)
	w.stream = d
	body := io.Reader(http.NoBody)
	if x.Body() != nil {
		body = d
	}
	r, err := http.NewRequestWithContext(&http1.Context{Exchange: x}, x.Method(), "http://"+x.Host()+x.Path(), body)
	if err != nil {
		panic(err)
	}
	r.Proto, r.RemoteAddr = x.Proto(), x.NetConn().RemoteAddr().String()
	if x.Secure() {
		r.TLS = &tls.ConnectionState{}
	}
	for line := range x.Fields.All() {
		r.Header.Add(line.Name, line.Value)
	}
	h.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	_ = d.End(nil) // fails if the client is gone
}

// A netHTTP2 serves HTTP/2 by a handler of net/http.
type netHTTP2 struct{ http.Handler }

// BeginHTTP2 implements http2.Handler.
func (netHTTP2) BeginHTTP2(*http2.Stream) bool { return true }

// ServeHTTP2 implements http2.Handler.
func (n netHTTP2) ServeHTTP2(s *http2.Stream) {
	r, err := http.NewRequestWithContext(s.Context(), s.Method, "http://"+s.Authority+s.Path, s)
	if err != nil {
		panic(err)
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.RemoteAddr, r.ContentLength = "HTTP/2.0", 2, 0, s.Peer().String(), s.Length
	if s.Secure() {
		r.TLS = &tls.ConnectionState{}
	}
	for line := range s.Fields.All() {
		r.Header.Add(line.Name, line.Value)
	}
	w := &streamWriter{stream: s, header: http.Header{}}
	n.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	_ = s.End(nil) // fails if the client is gone
}

// A streamWriter writes a response to a stream, or to a client of HTTP/1.1.
type streamWriter struct {
	stream interface {
		io.Writer
		Begin(status int, f *http1.Fields, length int64) error
		Flush() error
	}
	header http.Header
	begun  bool
}

func (w *streamWriter) Header() http.Header { return w.header }

func (w *streamWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	f := new(http1.Fields)
	for name, values := range w.header {
		for _, value := range values {
			f.Add(name, value)
		}
	}
	_ = w.stream.Begin(status, f, -1)
}

func (w *streamWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.stream.Write(p)
}

func (w *streamWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.stream.Flush()
}
