package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A subject whose code was used is neither counted nor refused for a time.
func TestReturn_Trust(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, `
keys: {phone: {from: "header:X-Phone", normalize: digits}, country: "header:X-Country"}
routes:
  - name: send
    match: {path: /send}
    upstream: 'URL'
    limits:
      - {name: unused, key: country, rate: 2/1h, return_on: {route: verify, key: phone}, conversion: 50%, trust: 30d, mode: enforce}
      - {name: quiet, key: country, rate: 2/1h, return_on: {route: verify, key: phone}, trust: 30d, mode: shadow}
      - {name: all, key: country, rate: 13/1h}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`, use)
		send := func(status int, phones ...string) {
			t.Helper()
			for _, phone := range phones {
				w.sends(status, "POST", "/send", "X-Country: CN", "X-Phone: "+phone)
			}
		}
		verify := func(phone string) { t.Helper(); w.sends(200, "POST", "/verify", "X-Phone: "+phone) }
		verify("9") // without a request to send it earns no trust
		send(200, "9", "1")
		send(429, "2")
		verify("2")
		send(429, "2")
		verify("1")
		send(200, "1", "1", "1", "1", "1") // 1 of 3 may be open, and is
		send(200, "3", "3")
		send(429, "4")
		explain := func(phone string) Explanation {
			t.Helper()
			r := ExplainRequest{Method: "POST", URL: "http://example.com/send", Header: map[string][]string{"X-Country": {"CN"}, "X-Phone": {phone}}}
			e, err := w.Explain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := explain("1")
		if l := e.Limits[0]; l.Asked || !strings.Contains(l.Reason, "its phone is trusted until 20") || !e.Decision.Allowed {
			t.Errorf("of a trusted phone: %+v, %+v", l, e.Decision)
		}
		if e := explain("4"); !e.Limits[0].Asked || e.Limits[0].Allowed || e.Decision.Allowed {
			t.Errorf("of another: %+v", e.Limits[0])
		}
		send(200, "1")
		verify("1") // nothing was taken: no further subject counts as confirmed
		send(429, "4")
		send(200, "1", "1", "1")
		send(429, "1") // other limits hold
	})
}

// Beyond the keys that memory counts separately, subjects share a count, and none is trusted for another.
func TestReturn_TrustsNoStranger(t *testing.T) {
	w := newReturning(t, func(o *Options) { o.Store = limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1}) })
	of := &limit{trust: &limiter.Limit{Name: "send.unused:trust:verified", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Distinct}}
	for i := range 200 {
		known, stranger := limiter.KeyOf("phone", fmt.Sprint("known", i)), limiter.KeyOf("phone", fmt.Sprint("stranger", i))
		if err := w.admitter.trust(of, known, 1); err != nil || w.admitter.isTrusted(t.Context(), of, stranger) {
			t.Fatalf("stranger %d is trusted, or %v", i, err)
		}
	}
}
