package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// Two nodes that take permits ahead grant as many as the rate allows together, also beside a limit that is asked each time, and
// whatever becomes of the requests; what one has left when it closes, the other has. Explain says so.
func TestAhead_TwoNodesGrantTheRate(t *testing.T) {
	const yaml = `
upstreams: {up: {targets: [{url: "URL"}]}}
routes:
  - match: {path: /alone}
    respond: {body: ok}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
  - match: {path: /beside}
    respond: {body: ok}
    limits:
      - {name: all, key: global, rate: 200/1h, lease: 1m}
      - {name: each, key: client_ip, rate: 150/1h}
      - {name: told, key: global, rate: 10/1h, mode: shadow}
  - match: {path: /fails}
    upstream: up
    refund_on: {status: [5xx]}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
  - match: {path: /closed}
    respond: {body: ok}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
`
	url := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	server := redistest.Start(t)
	near, far := nodes(t, strings.Replace(yaml, "URL", url, 1), redisstore.ClientConfig{Addrs: []string{server.Addr}})
	for path, want := range map[string]int{"/alone": 200, "/beside": 150, "/fails": 200} {
		passed := 0
		for range 250 {
			for _, p := range []*testProxy{near, far} {
				if rec := p.send("GET", path); rec.Code != http.StatusTooManyRequests {
					if passed++; passed == 1 && !strings.Contains(rec.Header().Get("RateLimit"), fmt.Sprint("r=", want-1)) {
						t.Errorf("%s: RateLimit %q of the first, want %d left", path, rec.Header().Get("RateLimit"), want-1)
					}
				} else if rec.Header().Get("Retry-After") == "" {
					t.Errorf("%s: refused without Retry-After", path)
				}
			}
		}
		if passed != want {
			t.Errorf("%s: %d passed, want %d", path, passed, want)
		}
	}
	for range 20 {
		near.sends(http.StatusOK, "GET", "/closed")
	}
	var calls int
	_, count, _ := strings.Cut(near.scrape("text/plain"), `weir_store_duration_seconds_count{operation="take"} `)
	fmt.Sscan(count, &calls)
	if calls == 0 || calls > 600 {
		t.Errorf("%d of 770 decisions are counted as calls of the store", calls)
	}
	near.admitter.Close()
	passed := 0
	for far.send("GET", "/closed").Code == http.StatusOK {
		passed++
	}
	if passed != 200-20 {
		t.Errorf("%d passed on another node after one with 20 has closed, want %d", passed, 200-20)
	}
	e := near.explains("GET", "/alone")
	if window := e.Limits[0].Windows[0]; window.Rate != "200/1h" {
		t.Errorf("explain says %q, want the rate as it is written", window.Rate)
	}
	if facts := e.Limits[0].Facts(e.Limits[0].Windows[0]); !slices.ContainsFunc(facts, func(f string) bool { return strings.HasPrefix(f, "taken ahead for 1m") }) {
		t.Errorf("explain says %q", facts)
	}
}

// What operators are shown of a rate is as it is written, not as the store counts it.
func TestAhead_RatesAreShownAsWritten(t *testing.T) {
	const yaml = `
alerts: {webhook: "http://127.0.0.1:1/"}
routes:
  - {name: told, match: {path: /told}, respond: {body: ok}, limits: [{name: each, key: client_ip, rate: 100/1h, lease: 1m}]}
`
	w, _ := nodes(t, yaml, redisstore.ClientConfig{Addrs: []string{redistest.Start(t).Addr}})
	for range 99 {
		w.sends(http.StatusOK, "GET", "/told")
	}
	if l := w.stands("client_ip=192.0.2.1")["told.each"]; len(l.Windows) != 1 || l.Windows[0].Rate != "100/1h" {
		t.Errorf("a key stands at %+v", l.Windows)
	}
	if near := w.admitter.NearLimits.Drain(); len(near) != 1 || near[0].Window != "1h" {
		t.Errorf("an alert tells of %+v", near)
	}
}
