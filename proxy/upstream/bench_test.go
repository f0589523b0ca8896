package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkForward compares Forward with httputil's proxy alone, over real
// sockets, so that what we add can be told.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		payload := strings.Repeat("x", size)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", strconv.Itoa(len(payload)))
			_, _ = io.WriteString(w, payload)
		}))
		pool := poolOf(b, s.URL)
		plain := &httputil.ReverseProxy{
			BufferPool: pool.buffers,
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.SetURL(mustURL(b, s.URL))
				pr.SetXForwarded()
			},
		}
		b.Run("weir/"+strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := request(b, "http://a/path")
				if res := forwardNet(pool, silent{http.Header{}}, r); res.Kind != OK {
					b.Fatal(res.Err)
				}
			}
		})
		b.Run("httputil/"+strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plain.ServeHTTP(silent{http.Header{}}, request(b, "http://a/path"))
			}
		})
		pool.Close()
		s.Close()
	}
}
