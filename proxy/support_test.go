package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/frontend"
)

// enough is how long a test waits for what must happen. It is a failure to reach
// it.
const enough = time.Minute

// A testServer is a testProxy that listens.
type testServer struct {
	*testProxy
	server *frontend.Server
	addr   string
	served sync.WaitGroup
}

// opened makes a proxy and lets it listen, as the file says but for the address.
func opened(t *testing.T, yaml string, change ...func(*Options)) *testServer {
	t.Helper()
	f := &testServer{testProxy: made(t, yaml, change...)}
	f.server = frontend.NewServer(f.Proxy, f.current.Load().config.Listen, zerolog.Nop())
	f.addr = f.listens(f.server.Serve)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		f.server.Drain(ctx)
		f.served.Wait()
	})
	return f
}

// listens starts serve on a free port, until the test ends.
func (f *testServer) listens(serve func(net.Listener) error) (addr string) {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.served.Go(func() {
		if err := serve(l); err != nil {
			f.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// A clientConn is a client's connection.
type clientConn struct {
	*testing.T
	net.Conn
	*bufio.Reader
}

func (w *clientConn) Read(p []byte) (int, error) { return w.Reader.Read(p) }

// dial connects a client that says these bytes.
func (f *testServer) dial(said string) *clientConn {
	f.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(enough))
	w := &clientConn{f.T, c, bufio.NewReader(c)}
	w.says("%s", said)
	return w
}

func (w *clientConn) says(format string, args ...any) {
	w.Helper()
	if _, err := fmt.Fprintf(w.Conn, format, args...); err != nil {
		w.Fatal(err)
	}
}

// hears reads one answer whole, to a request with this method.
func (w *clientConn) hears(method string) (*http.Response, string) {
	w.Helper()
	answer, err := http.ReadResponse(w.Reader, &http.Request{Method: method})
	if err != nil {
		w.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatalf("read body of answer: %v", err)
	}
	return answer, string(body)
}

// status reads one answer and checks its status.
func (w *clientConn) status(want int) (*http.Response, string) {
	w.Helper()
	answer, body := w.hears("GET")
	if answer.StatusCode != want {
		w.Fatalf("status %d; want %d\n%v\n%s", answer.StatusCode, want, answer.Header, body)
	}
	return answer, body
}

// ended checks that the connection ends without another byte.
func (w *clientConn) ended() {
	w.Helper()
	rest, err := io.ReadAll(w.Reader)
	var late net.Error
	if len(rest) > 0 || asTimeout(err, &late) {
		w.Errorf("the connection goes on: %q, %v; want its end", rest, err)
	}
}

func asTimeout(err error, late *net.Error) bool {
	var ok bool
	*late, ok = err.(net.Error)
	return ok && (*late).Timeout()
}

// upstreamOf starts an upstream for the test.
func upstreamOf(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// forwarding is a config of one route for everything, to url, with more lines
// before it and more fields of the route.
func forwarding(url, before, fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return before + "\nroutes:\n  - {name: all, match: {path: /*}, upstream: '" + url + "'" + fields + "}\n"
}

// await is the next value from c.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(enough):
		t.Fatalf("no %s within %v", what, enough)
		panic("unreachable")
	}
}

// endless writes to w until it fails.
func endless(w io.Writer) error {
	piece := []byte(strings.Repeat("x", 32<<10))
	for {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}
