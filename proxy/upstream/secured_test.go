package upstream

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

// A secured test is one whose clients, servers and targets speak TLS.
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
	return secured{
		t, &tls.Config{Certificates: certified.TLS.Certificates, DynamicRecordSizingDisabled: true}, // what is written together comes together
		&tls.Config{RootCAs: roots, ServerName: "example.com"},
	}
}

// listened is l as a server has it that clients of this test call.
func listened(t testing.TB, l net.Listener) net.Listener {
	if s, ok := t.(secured); ok {
		return tls.NewListener(l, s.server)
	}
	return l
}

// schemeOf is the scheme of the URLs of targets.
func schemeOf(t testing.TB) string {
	if _, ok := t.(secured); ok {
		return "https://"
	}
	return "http://"
}
