package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// What a target sends with an answer, beyond its end, is not the answer to anybody
// else, however soon they ask.
func TestReuse_UnsolicitedBytesAreNotResponses(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n"
	poison := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"+hints+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			if r, err = http.ReadRequest(rw.Reader); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}
	}
	secure := newTLS(t, poison)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for name, pool := range map[string]*Pool{
		"http":  poolOf(t, startBackend(t, poison)),
		"https": mustPool(t, Config{Targets: []Target{{URL: mustURL(t, secure.URL)}}, TLS: &tls.Config{RootCAs: roots}, ConnectTimeout: testTimeout, ResponseTimeout: testTimeout, TLSHandshakeTimeout: testTimeout}),
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(method, body string) (Result, string) {
				r, w := request(t, "http://a/"), httptest.NewRecorder()
				r.Method = method
				if body != "" {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				}
				return forwardNet(pool, w, r), w.Body.String()
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 40 {
						if res, body := ask("GET", ""); res.Kind != OK || body != "ok" {
							t.Errorf("GET is answered %v %q, want ok: %v", res.Kind, body, res.Err)
						}
						if res, body := ask("POST", "body"); res.Kind == OK && body != "ok" || res.Kind != OK && body != "" {
							t.Errorf("POST is answered %v %q, want ok or nothing: %v", res.Kind, body, res.Err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}
