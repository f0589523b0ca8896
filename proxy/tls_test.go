package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/sockettest"
)

// writeCertificate writes a certificate for example.com and its key into dir, and returns
// them and who trusts it.
func writeCertificate(t *testing.T, dir string) (config.Pair, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	pair := config.Pair{Cert: filepath.Join(dir, "a.pem"), Key: filepath.Join(dir, "a.key")}
	for path, block := range map[string]*pem.Block{pair.Cert: {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, pair.Key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return pair, roots
}

// listenTLS lets t listen in TLS too, with a certificate for example.com, and returns
// where, and how clients that trust it connect.
func (t *testServer) listenTLS() (addr string, client *tls.Config) {
	t.Helper()
	pair, roots := writeCertificate(t.T, t.TempDir())
	certs, err := frontend.LoadCertificates([]config.Pair{pair}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	addr = sockettest.Serve(t, &t.served, func(l net.Listener) error { return t.server.ServeTLS(l, certs, nil) })
	return addr, &tls.Config{RootCAs: roots, ServerName: "example.com"}
}

// listenTLSClient is listenTLS with a client.
func (t *testServer) listenTLSClient() (addr string, client *http.Client) {
	t.Helper()
	addr, secure := t.listenTLS()
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   secure,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return addr, &http.Client{Transport: transport, Timeout: enough}
}

func TestTLS_HTTP1AndHTTP2(t *testing.T) {
	f := startServer(t, forwardYAML("echo", "", ""))
	_, two := f.listenTLSClient()
	_, one := f.listenTLSClient()
	one.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	one.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	for want, client := range map[string]*http.Client{"HTTP/1.1": one, "HTTP/2.0": two} {
		for range 3 {
			answer, err := client.Post("https://example.com/x", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			var echoed struct {
				Body    string
				Headers http.Header
			}
			err = json.NewDecoder(answer.Body).Decode(&echoed)
			answer.Body.Close()
			if err != nil || answer.Proto != want || echoed.Body != "hello" || echoed.Headers.Get("X-Forwarded-Proto") != "https" {
				t.Errorf("%s: got %s, %v, %v; want https and the body", want, answer.Proto, err, echoed)
			}
		}
	}
}
