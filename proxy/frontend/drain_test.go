package frontend

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
)

// An observedListener is a listener that tells when it has accepted a connection, and when it was
// closed. The connections of one that holds them are slow to be served: nobody gets
// further with them before that.
type observedListener struct {
	net.Listener
	holds            bool
	accepted, closed chan struct{}
	first, end       sync.Once
}

func newObservedListener(t *testing.T) *observedListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &observedListener{Listener: l, accepted: make(chan struct{}), closed: make(chan struct{})}
}

func (l *observedListener) Close() error {
	defer l.end.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *observedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.first.Do(func() { close(l.accepted) })
	if err == nil && l.holds {
		c = blockedConn{c, l.closed}
	}
	return c, err
}

// A blockedConn connection cannot be looked into before until is closed.
type blockedConn struct {
	net.Conn
	until chan struct{}
}

func (c blockedConn) NetConn() net.Conn {
	<-c.until
	return c.Conn
}

// What was accepted just before the listener was closed is served, however long it
// takes until somebody begins to.
func TestDrain_ServesWhoWasAcceptedLast(t *testing.T) {
	l := newObservedListener(t)
	l.holds = true
	f := &testServer{T: t, server: newTestServer(echo(), bounds(t, ""), zerolog.Nop()), addr: l.Addr().String()}
	f.served.Go(func() { f.server.Serve(l) })
	defer f.served.Wait()
	w := f.dial(plainly)
	<-l.accepted
	if err := f.server.Drain(t.Context()); err != nil {
		t.Errorf("drain: %v", err)
	}
	if answer, _ := w.WantStatus(200); !answer.Close {
		t.Error("the last answer does not say so")
	}
}

// A client that is about to do its handshake has its request answered, in both
// protocols.
func TestDrain_ServesWhoIsInTheHandshake(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		pair := pairIn(t.TempDir(), "a")
		issue(t, pair, "a.example")
		l := newObservedListener(t)
		s := newTestServer(echo(), bounds(t, ""), zerolog.Nop())
		certificates, err := LoadCertificates([]config.Pair{pair}, nil, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		served.Go(func() { s.ServeTLS(l, certificates, nil) })
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		<-l.accepted
		done := make(chan error, 1)
		go func() { done <- s.Drain(t.Context()) }()
		<-l.closed
		protocols := new(http.Protocols)
		protocols.SetHTTP1(protocol == "HTTP/1.1")
		protocols.SetHTTP2(protocol == "HTTP/2.0")
		transport := &http.Transport{
			Protocols:       protocols,
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return raw, nil },
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}, //nolint:gosec // issued above
		}
		answer, err := (&http.Client{Transport: transport}).Get("https://a.example/")
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.Proto != protocol || answer.StatusCode != 200 {
			t.Errorf("answered %s %d; want %s", answer.Proto, answer.StatusCode, protocol)
		}
		transport.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
		served.Wait()
	}
}
