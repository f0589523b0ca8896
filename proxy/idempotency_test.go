package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/body"
)

// A marked is a body and its idempotency key; "" is none.
type marked struct{ key, body string }

// post sends a body to target.
func (p *testProxy) post(want int, target string, m marked, lines ...string) {
	p.Helper()
	r := httptest.NewRequest("POST", target, strings.NewReader(m.body))
	if m.key != "" {
		r.Header.Set("Idempotency-Key", m.key)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	rec := httptest.NewRecorder()
	p.ServeHTTP(rec, r)
	if rec.Code != want {
		p.Errorf("%s %q %q %v = %d; want %d\n%s", target, m.key, m.body, lines, rec.Code, want, rec.Body)
	}
}

// idempotent is one route before an upstream that answers what the query says,
// with a limit of each user.
func idempotent(t *testing.T, more string, use func(*Options)) (*testProxy, *atomic.Int64) {
	var reached atomic.Int64
	h := func(w http.ResponseWriter, r *http.Request) { reached.Add(1); answerByStatus(w, r) }
	w := newProxy(t, upstreamYAML(t, h, `idempotency: {repeats: 3}, refund_on: {status: [5xx]}, limits: [{name: l, key: header:X-User, rate: 2/1h}]`+more), use)
	return w, &reached
}

// An upstream keeps idempotency keys by account, so that a request of another one is no repeat. A
// renewed cookie is still the same account's.
func TestRepeat_OfOneAccount(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, _ := idempotent(t, "", use)
		alice := "X-User: alice"
		w.post(200, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 1", "Cookie: sid=1")
		w.post(200, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 1", "Cookie: sid=2") // a repeat
		w.post(200, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 2", "Cookie: sid=1") // counts: 2 of 2
		w.post(429, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 3")
		w.post(429, "/a", marked{"one", "body"}, alice)
		w.post(429, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 1", "Authorization: Bearer 2")
		w.post(200, "/a", marked{"one", "body"}, alice, "Authorization: Bearer 1") // a repeat
	})
}

func TestRepeat_CountsOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, reached := idempotent(t, "", use)
		alice, bob := "X-User: alice", "X-User: bob"
		w.post(200, "/a", marked{"one", "body"}, alice)
		w.post(200, "/a", marked{"one", "body"}, alice) // a repeat
		w.post(200, "/a", marked{"", "body"}, alice)    // counts: 2 of 2
		w.post(200, "/a", marked{"one", "body"}, alice) // a repeat passes though nothing is left
		w.post(429, "/a", marked{"two", "body"}, alice)
		w.post(429, "/a", marked{"one", "other"}, alice)
		w.post(429, "/a?x=1", marked{"one", "body"}, alice)
		w.post(429, "/a", marked{"", "body"}, alice)
		w.post(429, "/a", marked{"one", "body"}, alice, "Authorization: Bearer x") // another account's
		w.post(200, "/a", marked{"one", "body"}, bob)                              // another's first
		w.post(200, "/a", marked{"", "body"}, bob)
		w.post(429, "/a", marked{"", "body"}, bob)
		w.post(200, "/a", marked{"one", "body"}, alice)
		w.post(429, "/a", marked{"one", "body"}, alice) // more than 3 repeats
		if reached.Load() != 7 {
			t.Errorf("%d reached the upstream; want 7", reached.Load())
		}
		if got := testutil.ToFloat64(w.metrics.repeats.WithLabelValues("a")); got != 3 {
			t.Errorf("weir_repeats_total = %v; want 3", got)
		}
	})
}

// What was given back was not counted, so the next of its kind is a first one
// again.
func TestRepeat_AfterAFailureCountsAgain(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, _ := idempotent(t, "", use)
		for range 6 {
			w.post(503, "/a?status=503", marked{"one", "body"}, "X-User: alice")
		}
		if got := testutil.ToFloat64(w.metrics.repeats.WithLabelValues("a")); got != 0 {
			t.Errorf("weir_repeats_total = %v; want none: each was given back", got)
		}
		w.post(200, "/a", marked{"two", "body"}, "X-User: alice")
		w.post(200, "/a", marked{"three", "body"}, "X-User: alice")
		w.post(429, "/a?status=503", marked{"one", "body"}, "X-User: alice")
	})
}

func TestRepeat_RefusedIsNotRemembered(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	for _, mark := range []string{"one", "two"} {
		w.post(200, "/a", marked{mark, ""}, "X-User: alice")
	}
	for range 3 {
		w.post(429, "/a", marked{"three", ""}, "X-User: alice")
	}
}

// Of many that come at once one counts, and no more than the repeats pass besides.
func TestRepeat_AtOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, reached := idempotent(t, "", use)
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				r := httptest.NewRequest("POST", "/a", strings.NewReader("body"))
				r.Header.Set("Idempotency-Key", "one")
				r.Header.Set("X-User", "alice")
				w.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		all.Wait()
		if reached.Load() != 2+3 {
			t.Errorf("%d reached the upstream; want 2 that count and 3 repeats", reached.Load())
		}
	})
}

func TestRepeat_MarksThatAreNone(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	w.post(400, "/a", marked{strings.Repeat("x", 256), ""}, "X-User: alice")
	w.post(400, "/a", marked{"one", ""}, "X-User: alice", "Idempotency-Key: two")
	w.sends(400, "POST", "/a", "X-User: alice", "Idempotency-Key: ")
	w.post(413, "/a", marked{"one", strings.Repeat("x", body.DefaultMax+1)}, "X-User: alice")
	w.post(200, "/a", marked{"", strings.Repeat("x", body.DefaultMax+1)}, "X-User: alice")
}

func TestRepeat_WithoutTheStoreEverythingCounts(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	w.store.fail(limiter.ErrUnavailable)
	w.post(200, "/a", marked{"one", "body"}, "X-User: alice")
	w.post(200, "/a", marked{"one", "body"}, "X-User: alice")
	w.post(429, "/a", marked{"one", "body"}, "X-User: alice")
}
