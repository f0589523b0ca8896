// Package sockettest speaks HTTP/1.1 by hand: a test says bytes on a connection and
// looks at what comes back, over plain TCP or over TLS.
package sockettest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// A Client is a client's connection. It ends with the test, which fails if anything
// lasts longer than await.Limit.
type Client struct {
	testing.TB
	net.Conn
	*bufio.Reader
}

// Read reads what was read into the buffer first.
func (c *Client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// Dial connects to addr, over TLS in a Secured test, and says these bytes.
func Dial(tb testing.TB, addr, said string) *Client {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(await.Limit))
	c := NewClient(tb, ClientSide(tb, conn))
	c.Send(said)
	return c
}

// NewClient is a client that speaks on conn.
func NewClient(tb testing.TB, conn net.Conn) *Client { return &Client{tb, conn, bufio.NewReader(conn)} }

// Send sends text as it is.
func (c *Client) Send(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.Fatal(err)
	}
}

// ReadResponse reads one answer to a request with that method, and its body.
func (c *Client) ReadResponse(method string) (*http.Response, string) {
	c.Helper()
	answer, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatalf("read body of answer: %v after %q", err, body)
	}
	return answer, string(body)
}

// WantStatus reads one answer to GET, and checks its status.
func (c *Client) WantStatus(want int) (*http.Response, string) {
	c.Helper()
	answer, body := c.ReadResponse("GET")
	if answer.StatusCode != want {
		c.Fatalf("status %d; want %d\n%v\n%s", answer.StatusCode, want, answer.Header, body)
	}
	return answer, body
}

// WantClosed checks that the connection ends without another byte.
func (c *Client) WantClosed() {
	c.Helper()
	rest, err := io.ReadAll(c.Reader)
	if len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("the connection goes on: %q, %v; want its end", rest, err)
	}
}

// HTTPClient is a client of net/http, over HTTP/2 where it can, whose connections go to addr whatever it is asked for.
func HTTPClient(tb testing.TB, addr string, secure *tls.Config) *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: secure, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: await.Limit}
}

// Listen listens on a free port of 127.0.0.1, until the test ends or the caller closes it.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// Serve runs serve with a listener on a free port of 127.0.0.1, as a goroutine of running,
// and returns the address. The test fails if serve returns an error.
func Serve(t testing.TB, running *sync.WaitGroup, serve func(net.Listener) error) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // serve closes it
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
	l := Listen(tb)
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

// ClosedAddr returns an address at which connections are refused until the test ends. Its
// port is bound by a socket that does not listen, so that no other process gets it.
func ClosedAddr(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock() // no other program gets the socket; SOCK_CLOEXEC does not exist everywhere
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(at.(*syscall.SockaddrInet4).Port)).String()
}

// OverBoth runs a test over plain connections, and over TLS: its Dial, and what it gives
// to ClientSide, ServerSide and Listener, then speak TLS.
func OverBoth(t *testing.T, test func(t testing.TB)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t) })
	t.Run("tls", func(t *testing.T) { test(NewSecured(t)) })
}

// A Secured test is one whose connections are TLS.
type Secured struct {
	*testing.T
	Server, Client *tls.Config
}

// NewSecured makes a Secured test of t.
func NewSecured(t *testing.T) Secured {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	return Secured{
		t, &tls.Config{Certificates: certified.TLS.Certificates, DynamicRecordSizingDisabled: true}, // what is written together comes together
		&tls.Config{RootCAs: roots, ServerName: "example.com"},
	}
}

// ServerSide is c as the side that was called has it.
func ServerSide(t testing.TB, c net.Conn) net.Conn {
	if s, ok := t.(Secured); ok {
		return tls.Server(c, s.Server)
	}
	return c
}

// ClientSide is c as the side that has called has it.
func ClientSide(t testing.TB, c net.Conn) net.Conn {
	if s, ok := t.(Secured); ok {
		return tls.Client(c, s.Client)
	}
	return c
}

// Listener is l as a server has it that is called.
func Listener(t testing.TB, l net.Listener) net.Listener {
	if s, ok := t.(Secured); ok {
		return tls.NewListener(l, s.Server)
	}
	return l
}

// Scheme is the scheme of the server's URLs.
func Scheme(t testing.TB) string {
	if _, ok := t.(Secured); ok {
		return "https://"
	}
	return "http://"
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
