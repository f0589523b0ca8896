package proxy

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// listenTLS lets t listen in TLS too, with a certificate for example.com, and returns
// where, and how clients that trust it connect.
func (t *testServer) listenTLS() (addr string, client *tls.Config) {
	t.Helper()
	cert, key := certtest.New(t, "example.com")
	path := filetest.Files(t, "a.pem", cert, "a.key", key)
	certs, err := frontend.LoadCertificates([]config.Pair{{Cert: path, Key: strings.TrimSuffix(path, "pem") + "key"}}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	addr = sockettest.Serve(t, &t.served, func(l net.Listener) error { return t.server.ServeTLS(l, certs, nil) })
	return addr, &tls.Config{RootCAs: certtest.Trusting(cert), ServerName: "example.com"}
}

// listenTLSClient is listenTLS with a client.
func (t *testServer) listenTLSClient() (addr string, client *http.Client) {
	t.Helper()
	addr, secure := t.listenTLS()
	return addr, sockettest.HTTPClient(t, addr, secure)
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
