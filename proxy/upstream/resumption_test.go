package upstream

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A second connection to a target resumes the TLS session of the first one.
func TestTLS_SessionsAreResumed(t *testing.T) {
	for name, protocol := range map[string]Protocol{"HTTP/1.1": HTTP1, "HTTP/2": HTTP2} {
		t.Run(name, func(t *testing.T) {
			var resumed, full atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS.DidResume {
					resumed.Add(1)
				} else {
					full.Add(1)
				}
				if r.ProtoMajor == 1 {
					w.Header().Set("Connection", "close")
				}
			}))
			s.EnableHTTP2 = protocol == HTTP2
			s.StartTLS()
			t.Cleanup(s.Close)
			trust := s.Client().Transport.(*http.Transport).TLSClientConfig
			if protocol == HTTP2 {
				transport := newTransport(Config{Protocol: HTTP2, TLS: &tls.Config{RootCAs: trust.RootCAs}}, nil)
				for range 3 {
					res, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
					if err != nil {
						t.Fatal(err)
					}
					res.Body.Close()
					transport.CloseIdleConnections()
				}
			} else {
				address := s.Listener.Addr().String()
				client := &http1.Client{}
				pool := client.NewPool(http1.Endpoint{Network: "tcp", Address: address, TLS: tlsConfigFor(&tls.Config{RootCAs: trust.RootCAs}, address)})
				defer pool.Close()
				for range 3 {
					getOnce(t, pool)
				}
			}
			if full.Load() != 1 || resumed.Load() != 2 {
				t.Errorf("%d full handshakes and %d resumed ones; want 1 and 2", full.Load(), resumed.Load())
			}
		})
	}
}

// getOnce sends a request and reads the response, with the session ticket before it.
func getOnce(t *testing.T, pool *http1.Pool) {
	t.Helper()
	call := (&http1.Client{}).NewCall(nil)
	defer call.Release()
	call.Begin("GET", "a", "/")
	if err := pool.Send(call); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := call.Body().Next(); err != nil {
			return
		}
	}
}
