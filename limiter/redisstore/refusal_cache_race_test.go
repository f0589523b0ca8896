package redisstore

import (
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Whatever happens at the same time, no refusal stays that was asked for before an
// invalidation.
func TestRefusalCache_NoneIsOlderThanAnInvalidation(t *testing.T) {
	n := newRefusalCache(64)
	defer n.close()
	n.setSubscribed(true)
	c := limiter.Claim{Limit: &limiter.Limit{Name: "l"}, Key: limiter.KeyOf("k"), Cost: 1}
	id := windowIDOf(&c)
	refused := limiter.Decision{At: time.UnixMilli(1), Outcomes: []limiter.Outcome{{Wait: time.Hour}}}
	old := n.version.Load()
	n.invalidate(id)
	n.learn([]limiter.Claim{c}, time.Now(), old, &refused)
	if _, ok := n.cache.GetIfPresent(id); ok {
		t.Error("cached, though asked for before an invalidation")
	}
	stayed := 0
	for range 3000 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				version := n.version.Load()
				d := limiter.Decision{At: time.UnixMilli(int64(version)), Outcomes: refused.Outcomes}
				n.learn([]limiter.Claim{c}, time.Now(), version, &d)
			})
		}
		all.Go(func() { n.invalidate(id) })
		all.Wait()
		if d, ok := n.cache.GetIfPresent(id); ok {
			if stayed++; d.redisTime != int64(n.version.Load()) {
				t.Fatalf("asked for at version %d, now %d", d.redisTime, n.version.Load())
			}
		}
		n.setSubscribed(true)
	}
	if stayed == 0 {
		t.Error("none was ever cached")
	}
}
