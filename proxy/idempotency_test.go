package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/body"
)

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
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 1", "Cookie: sid=1")
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 1", "Cookie: sid=2") // a repeat
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 2", "Cookie: sid=1") // counts: 2 of 2
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 3")
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", alice)
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 1", "Authorization: Bearer 2")
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer 1") // a repeat
	})
}

func TestRepeat_CountsOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, reached := idempotent(t, "", use)
		alice, bob := "X-User: alice", "X-User: bob"
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice)
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice) // a repeat
		w.sends(200, "POST", "/a", "body", alice)                         // counts: 2 of 2
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice) // a repeat passes though nothing is left
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: two", alice)
		w.sends(429, "POST", "/a", "other", "Idempotency-Key: one", alice)
		w.sends(429, "POST", "/a?x=1", "body", "Idempotency-Key: one", alice)
		w.sends(429, "POST", "/a", "body", alice)
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", alice, "Authorization: Bearer x") // another account's
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", bob)                              // another's first
		w.sendsAll([]int{200, 429}, "POST", "/a", "body", bob)
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", alice)
		w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", alice) // more than 3 repeats
		if reached.Load() != 7 {
			t.Errorf("%d reached the upstream; want 7", reached.Load())
		}
		w.counted(3, w.metrics.repeats.WithLabelValues("a"))
	})
}

// What was given back was not counted, so the next of its kind is a first one
// again.
func TestRepeat_AfterAFailureCountsAgain(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, _ := idempotent(t, "", use)
		w.sendsAll(times(6, 503), "POST", "/a?status=503", "body", "Idempotency-Key: one", "X-User: alice")
		w.counted(0, w.metrics.repeats.WithLabelValues("a"))
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: two", "X-User: alice")
		w.sends(200, "POST", "/a", "body", "Idempotency-Key: three", "X-User: alice")
		w.sends(429, "POST", "/a?status=503", "body", "Idempotency-Key: one", "X-User: alice")
	})
}

func TestRepeat_RefusedIsNotRemembered(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	for _, mark := range []string{"one", "two"} {
		w.sends(200, "POST", "/a", "Idempotency-Key: "+mark, "X-User: alice")
	}
	w.sendsAll(times(3, 429), "POST", "/a", "Idempotency-Key: three", "X-User: alice")
}

// Of many that come at once one counts, and no more than the repeats pass besides.
func TestRepeat_AtOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w, reached := idempotent(t, "", use)
		atOnce(40, func(int) bool {
			return w.send("POST", "/a", "body", "Idempotency-Key: one", "X-User: alice").Code == 200
		})
		if reached.Load() != 2+3 {
			t.Errorf("%d reached the upstream; want 2 that count and 3 repeats", reached.Load())
		}
	})
}

func TestRepeat_MarksThatAreNone(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	w.sends(400, "POST", "/a", "Idempotency-Key: "+strings.Repeat("x", 256), "X-User: alice")
	w.sends(400, "POST", "/a", "Idempotency-Key: one", "X-User: alice", "Idempotency-Key: two")
	w.sends(400, "POST", "/a", "X-User: alice", "Idempotency-Key: ")
	w.sends(413, "POST", "/a", strings.Repeat("x", body.DefaultMax+1), "Idempotency-Key: one", "X-User: alice")
	w.sends(200, "POST", "/a", strings.Repeat("x", body.DefaultMax+1), "X-User: alice")
}

func TestRepeat_WithoutTheStoreEverythingCounts(t *testing.T) {
	w, _ := idempotent(t, "", func(*Options) {})
	w.store.fail(limiter.ErrUnavailable)
	w.sendsAll([]int{200, 200, 429}, "POST", "/a", "body", "Idempotency-Key: one", "X-User: alice")
}

// What a limit counts or charges may be in a field that is neither in the body nor in the target. A request with another one
// is no repeat.
func TestRepeat_OfWhatLimitsCount(t *testing.T) {
	for _, c := range []struct{ limit, field string }{
		{"key: client_ip, distinct: header:X-Phone, rate: 2/1h", "X-Phone: "},
		{"key: client_ip, rate: 3/1h, cost: header:X-Codes, max_cost: 3", "X-Codes: "},
	} {
		overEachStore(t, func(t *testing.T, use func(*Options)) {
			w := newProxy(t, upstreamYAML(t, answerByStatus, `idempotency: {}, limits: [{name: l, `+c.limit+`}]`), use)
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", c.field+"1")
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", c.field+"1") // a repeat
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", c.field+"2") // counts
			w.sends(429, "POST", "/a", "body", "Idempotency-Key: one", c.field+"3")
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", c.field+"1") // a repeat
		})
	}
}

// A limit in shadow mode tells what it would do when it is enforced: repeats do not count by it either. Beside an enforced limit it
// does not say what is a repeat, and alone it refuses nothing either while the store is away.
func TestRepeat_DoesNotCountInShadow(t *testing.T) {
	for more, repeats := range map[string]float64{"": 3, "{name: e, key: client_ip, rate: 9/1h}, ": 4} {
		overEachStore(t, func(t *testing.T, use func(*Options)) {
			w := newProxy(t, upstreamYAML(t, answerByStatus, `idempotency: {}, limits: [`+more+`{name: l, key: header:X-User, rate: 2/1h, mode: shadow}]`), use)
			for range 4 {
				w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", "X-User: alice")
			}
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: two", "X-User: alice")
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: three", "X-User: alice") // would be refused
			w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", "X-User: bob")
			var refused []int
			for i, line := range w.lines("request") {
				if line["shadow"] != nil {
					refused = append(refused, i)
				}
			}
			if !slices.Equal(refused, []int{5}) {
				t.Errorf("with %q shadow mode would refuse the requests %v; want the sixth alone", more, refused)
			}
			w.counted(repeats, w.metrics.repeats.WithLabelValues("a"))
		})
	}
	w := newProxy(t, upstreamYAML(t, answerByStatus, `idempotency: {}, limits: [{name: l, key: header:X-User, rate: 2/1h, mode: shadow, on_store_failure: deny}]`))
	w.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
	w.sends(200, "POST", "/a", "body", "Idempotency-Key: one", "X-User: alice")
}
