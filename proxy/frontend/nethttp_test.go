package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// startNetHTTP lets operators be served as listen says, over TLS if secure is not nil, until the test ends.
func startNetHTTP(t *testing.T, listen string, h http.Handler, secure *Certificates) (s *NetHTTPServer, addr string, served chan error) {
	t.Helper()
	l := sockettest.Listen(t)
	s, served = NewNetHTTPServer(h, bounds(t, listen)), make(chan error, 1)
	go func() {
		if secure == nil {
			served <- s.Serve(l)
			return
		}
		served <- s.ServeTLS(l, secure, nil)
	}()
	t.Cleanup(func() { _ = s.Drain(context.Background()) })
	return s, l.Addr().String(), served
}

// A header that does not come in time ends a connection, and so does a connection that is idle.
func TestNetHTTPServer_EndsWhoSaysNothing(t *testing.T) {
	_, addr, _ := startNetHTTP(t, "timeouts: {header: 50ms, idle: 50ms}", echo(), nil)
	sockettest.Dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n").WantClosed()
	idle := sockettest.Dial(t, addr, plainly)
	idle.WantStatus(200)
	idle.WantClosed()
}

// A header that is too long is refused.
func TestNetHTTPServer_BoundsTheHeader(t *testing.T) {
	_, addr, _ := startNetHTTP(t, "max_header: 8KiB", echo(), nil)
	sockettest.Dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nX-A: "+strings.Repeat("a", 20<<10)+"\r\n\r\n").WantStatus(http.StatusRequestHeaderFieldsTooLarge)
}

// Operators who offer HTTP/2 get HTTP/1.1.
func TestNetHTTPServer_HTTP11Alone(t *testing.T) {
	f := &testServer{T: t}
	certs, client := f.certificates()
	_, addr, _ := startNetHTTP(t, "", echo(), certs)
	client = client.Clone()
	client.NextProtos = []string{"h2", "http/1.1"}
	c, err := tls.Dial("tcp", addr, client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("negotiated %q", got)
	}
}

// A drain waits for requests in progress, and ends serving without an error; a listener that fails is one.
func TestNetHTTPServer_Drain(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s, addr, served := startNetHTTP(t, "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-end
	}), nil)
	c := sockettest.Dial(t, addr, plainly)
	await.Value(t, begun, "request")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a drain that gives up says %v", err)
	}
	if err := await.Value(t, served, "end of serving"); err != nil {
		t.Errorf("serving ends with %v", err)
	}
	close(end)
	c.WantStatus(200)
	if err := s.Drain(t.Context()); err != nil {
		t.Errorf("a drain after the last request says %v", err)
	}
	closed := sockettest.Listen(t)
	closed.Close()
	if err := NewNetHTTPServer(echo(), bounds(t, "")).Serve(closed); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener says %v", err)
	}
}

// A deadlined is a response that knows until when the body of its request is read.
type deadlined struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error {
	d.until = at
	return nil
}

// Whoever begins a body and does not end it does not stay for ever, with a descriptor that clients need. Whoever reads events does.
func TestNetHTTPServer_WaitsForNoBodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for body, want := range map[io.Reader]time.Time{strings.NewReader("a"): time.Now().Add(bodyWithin), http.NoBody: {}} {
			d := &deadlined{ResponseRecorder: httptest.NewRecorder()}
			NewNetHTTPServer(echo(), config.Listen{}).server.Handler.ServeHTTP(d, httptest.NewRequest("POST", "/", body))
			if !d.until.Equal(want) {
				t.Errorf("the body %v is read until %v; want %v", body, d.until, want)
			}
		}
	})
}
