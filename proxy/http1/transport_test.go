package http1

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// overBoth runs a test over plain connections, and over TLS on both sides.
func overBoth(t *testing.T, test func(t testing.TB)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t) })
	t.Run("tls", func(t *testing.T) { test(newSecured(t)) })
}

// A secured test is one whose proxies, clients and upstreams speak TLS.
type secured struct {
	*testing.T
	server, client *tls.Config
}

func newSecured(t *testing.T) secured {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	return secured{t, &tls.Config{Certificates: certified.TLS.Certificates}, &tls.Config{RootCAs: roots, ServerName: "example.com"}}
}

// serverSide is c as the side that was called has it.
func serverSide(t testing.TB, c net.Conn) net.Conn {
	if s, ok := t.(secured); ok {
		whole := s.server.Clone()
		whole.DynamicRecordSizingDisabled = true // what is written together comes together
		return tls.Server(c, whole)
	}
	return c
}

// clientSide is c as the side that has called has it.
func clientSide(t testing.TB, c net.Conn) net.Conn {
	if s, ok := t.(secured); ok {
		return tls.Client(c, s.client)
	}
	return c
}

// sendsNoMore ends one direction of a connection.
func sendsNoMore(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() }
