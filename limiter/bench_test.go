package limiter_test

import (
	"sync"
	"testing"

	xrate "golang.org/x/time/rate"

	"github.com/weir-proxy/weir/limiter"
)

// BenchmarkKeys asks one limit over 10,000 keys, as others are made to: one
// x/time/rate limiter for each key, in a map under a lock.
func BenchmarkKeys(b *testing.B) {
	const keys = 10_000
	all := make([]limiter.Key, keys)
	for i := range all {
		all[i] = numbered(i)
	}
	for name, count := range map[string]int64{"granted": 1_000_000_000, "refused": 1} {
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
			b.Run(name+"/"+a.String(), func(b *testing.B) {
				m := limiter.NewMemory(limiter.MemoryOptions{})
				claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: count, Window: limiter.MaxWindow}, Algorithm: a}, Cost: 1}}
				var d limiter.Decision
				ctx := b.Context()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					claims[0].Key = all[i%keys]
					if err := m.Take(ctx, claims, &d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(name+"/x-time-rate", func(b *testing.B) {
			var mu sync.Mutex
			limiters := map[limiter.Key]*xrate.Limiter{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := all[i%keys]
				mu.Lock()
				l := limiters[k]
				if l == nil {
					l = xrate.NewLimiter(xrate.Limit(float64(count)/limiter.MaxWindow.Seconds()), int(count))
					limiters[k] = l
				}
				mu.Unlock()
				l.Allow()
			}
		})
	}
}
