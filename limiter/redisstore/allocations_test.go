package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/rounds"
)

// What a decision costs where nothing is unusual is no memory: neither the caller nor
// what carries its call.
func TestTake_AllocatesNothing(t *testing.T) {
	s := newTestStore(t)
	for a := range limiter.NumAlgorithms {
		l := limitertest.LimitOf(a, a.String()+":10s", limiter.Rate{Count: 1000, Window: 10 * time.Second})
		claims := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}
		if a.HasValues() {
			claims[0].Value = limiter.KeyOf("v")
		}
		var d limiter.Decision
		take := func() {
			s.check(s.store.Take(t.Context(), claims, &d))
		}
		for range 10 {
			take()
		}
		if n := rounds.Allocations(200, take); n != 0 && !raced && !reuse.Poisoned {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}
