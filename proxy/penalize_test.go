package proxy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestPenalize_BansAfterSoManyRefusals(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, limitYAML(`{name: all, key: global, rate: 1000/1h}, {name: l, key: header:X-User, rates: [2/1m, 50/10m], penalty: {ban: 1h, after: 3}}`), use)
		w.sends(200, "GET", "/a", "X-User: alice")
		w.sends(200, "GET", "/a", "X-User: alice")
		for i := range 6 {
			rec := w.sends(429, "GET", "/a", "X-User: alice")
			after, _ := strconv.Atoi(rec.Header().Get("Retry-After"))
			if banned := after >= 3590; banned != (i >= 2) {
				t.Errorf("refusal %d: Retry-After = %d; want an hour from the third on", i+1, after)
			}
			if i == 4 {
				if got := rec.Header().Get("RateLimit"); !strings.Contains(got, `"l-1m";r=0;t=3`) {
					t.Errorf("RateLimit = %s; want nothing for an hour", got)
				}
			}
		}
		w.sends(200, "GET", "/a", "X-User: bob")
		w.counted(1, w.metrics.Bans.WithLabelValues("a", "l"))
		lines := w.lines("request")
		for i, want := range []any{nil, true, true} {
			if got := lines[3+i]; got["banned"] != want || (got["ban_began"] == true) != (i == 1) || got["rate"] != "l-1m" {
				t.Errorf("%v; want the third refusal to ban, and those after it to be for the ban", got)
			}
		}
	})
}

// After its ban a key begins anew: the refusals from before are forgotten.
func TestPenalize_BeginsAnewAfterTheBan(t *testing.T) {
	now := time.Now()
	w := newProxy(t, limitYAML(`{name: l, key: global, rate: 1/1m, penalty: {ban: 1h, after: 2}}`), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	})
	for range 2 {
		w.sends(200, "GET", "/a")
		for i := range 3 {
			rec := w.sends(429, "GET", "/a")
			after, _ := strconv.Atoi(rec.Header().Get("Retry-After"))
			if (after >= 3600) != (i >= 1) {
				t.Errorf("refusal %d: Retry-After = %d; want a ban from the second on", i+1, after)
			}
		}
		now = now.Add(59 * time.Minute)
		w.sends(429, "GET", "/a")
		now = now.Add(2 * time.Minute)
	}
}

// Refusals that others cause, and those further apart than the window, do not
// count.
func TestPenalize_CountsOnlyItsOwn(t *testing.T) {
	now := time.Now()
	w := newProxy(t, limitYAML(`{name: other, key: global, rate: 1/1s}, {name: l, key: header:X-User, rate: 1/1m, penalty: {ban: 1h, after: 2}}`), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	})
	w.sends(200, "GET", "/a", "X-User: bob")
	for range 9 {
		w.sends(429, "GET", "/a", "X-User: alice") // by other
	}
	for range 5 {
		now = now.Add(61 * time.Second)
		w.sends(200, "GET", "/a", "X-User: alice")
		now = now.Add(time.Second)
		w.sends(429, "GET", "/a", "X-User: alice")
	}
	w.counted(0, w.metrics.Bans.WithLabelValues("a", "l"))
}
