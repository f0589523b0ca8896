package sockettest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

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
