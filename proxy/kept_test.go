//go:build poison

package proxy

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// A text of a request shares the buffer of its connection, and whoever keeps it for longer has the text of another request.
// In this build no buffer is reused: so one that something refers to after its request stays in memory, and all such buffers
// together are seen. The few values that limits count are in many buffers.
func TestExchanges_NoBufferIsKept(t *testing.T) {
	const few, many, most = 300, 1500, 1200 // requests, and bytes that may stay of each: its lines of the log, its span
	for _, down := range []string{"http1", "h2c"} {
		for _, up := range []string{"http1", "h2c"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				upstream := startVersion(t, up, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Path", r.URL.Path) })
				f := startServer(t, fmt.Sprintf(trailed, upstream)+"traces: {endpoint: '"+closedURL(t)+"', sample: 100%, parent: any}\n")
				client := &http.Transport{Protocols: protocolsOf(down)}
				t.Cleanup(client.CloseIdleConnections)
				ask := func(n int) {
					r, _ := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://%s/%s?q=%d", f.addr, []string{"a", "b"}[n%2], n), strings.NewReader(`{"phone": "1"}`))
					r.Host = fmt.Sprintf("h%d.example", n)
					for _, name := range []string{"Idempotency-Key", "X-Friend", "X-Fan", "X-Phone", "X-App"} {
						r.Header.Set(name, fmt.Sprint(n%5))
					}
					for _, name := range []string{"X-Request-Id", "User-Agent", "Referer", "X-Odd", "Tracestate"} {
						r.Header.Set(name, fmt.Sprint("a=", n))
					}
					r.Header.Set("X-Pad", strings.Repeat("x", 4*most)) // what its head shares is larger, over HTTP/2 too
					r.Header.Set("Traceparent", fmt.Sprintf("00-%032x-%016x-01", n+1, n+1))
					answer, err := client.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					answer.Body.Close()
				}
				for n := range few {
					ask(n)
				}
				before := inUse()
				for n := few; n < few+many; n++ {
					ask(n)
				}
				if grown := inUse() - before; grown > many*most {
					t.Errorf("%d bytes stay in memory for each request", grown/many)
				}
			})
		}
	}
}

// inUse is how many bytes of memory something refers to.
func inUse() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
