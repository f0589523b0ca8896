package limitertest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// concurrent: 32 callers share three keys while the clock runs on, and no window
// by the store's own clock holds more than the rate; afterwards all comes back.
func concurrent(t *testing.T, s *suite) {
	const callers = 32
	calls := min(150, max(30, s.steps()))
	l, total := limit("hot", 40, 10*time.Second), limit("total", 300, 10*time.Second)
	keys, all := []limiter.Key{s.key(), s.key(), s.key()}, s.key()
	var mu sync.Mutex
	logs := make(map[limiter.Key]*model)
	for _, k := range append(keys, all) {
		logs[k] = new(model)
	}
	start := s.peek(t, oneClaim(total, all, 1)).At

	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			var d limiter.Decision
			for i := range calls {
				claims := []limiter.Claim{{Limit: l, Key: keys[(caller+i)%len(keys)], Cost: 1}, {Limit: total, Key: all, Cost: 1 + int64(i%3)}}
				if i%2 == 1 { // opposite orders must not wait for each other
					slices.Reverse(claims)
				}
				if s.PerKeyTime {
					claims = claims[i%4/2 : i%4/2+1]
				}
				if err := s.Store.Take(t.Context(), claims, &d); err != nil {
					t.Errorf("take: %v", err)
					return
				}
				if d.Allowed {
					mu.Lock()
					for _, c := range claims {
						logs[c.Key].log = append(logs[c.Key].log, grant{at: d.At.Sub(start), n: c.Cost})
					}
					mu.Unlock()
				}
				if i%5 == 0 {
					s.Advance(3000 * time.Millisecond / time.Duration(calls))
				}
			}
		})
	}
	wg.Wait()
	for k, m := range logs {
		rate := l.Rate
		if k == all {
			rate = total.Rate
		}
		slices.SortFunc(m.log, func(a, b grant) int { return int(a.at - b.at) })
		worst := m.fullestWindow(rate.Window)
		if worst > rate.Count || worst < rate.Count/2 {
			t.Errorf("%d permits in the fullest window of %s", worst, rate)
		}
	}
	s.Advance(10*time.Second + 10*time.Second/64)
	s.left(oneClaim(l, keys[0], 1), 40)
	s.left(oneClaim(total, all, 1), 300)
}
