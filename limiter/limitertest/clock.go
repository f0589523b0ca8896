package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// clockSteps moves the clock of the store by a step, as a failover to a replica with
// another clock does. What was taken before counts as taken now at the latest: a refused
// key passes again after the wait that its first refusal tells, however often it asks
// meanwhile, and no window holds more than the rate.
func clockSteps(t *testing.T, s *suite) {
	const window = 10 * time.Second
	for _, l := range steppedLimits(window) {
		for _, steps := range [][]time.Duration{{-500 * time.Millisecond}, {-10 * time.Second}, {-time.Hour}, {time.Hour, -time.Hour}} {
			t.Run(fmt.Sprint(l.Algorithm, steps), func(t *testing.T) {
				c := []limiter.Claim{{Key: s.key(), Limit: l, Cost: 1}}
				s.Advance(3 * time.Hour) // nothing that is taken is in the future of an earlier row
				s.Advance(-steps[0] / 2)
				if len(steps) > 1 {
					s.Advance(steps[0])
				}
				s.fill(t, c)
				s.Advance(steps[len(steps)-1])
				first := s.take(t, distinctly(c, 100))
				wait := first.Wait
				if first.Allowed || wait <= 0 || wait > longestWait(l) {
					t.Fatalf("allowed %t, wait %v; want a refusal of at most %v", first.Allowed, wait, longestWait(l))
				}
				for left := wait; left > 0; {
					step := min(left, max(wait/5, time.Millisecond))
					if d := s.take(t, distinctly(c, 100)); d.Allowed || d.Wait > left {
						t.Fatalf("%v before the end: allowed %t, wait %v", left, d.Allowed, d.Wait)
					}
					s.Advance(step)
					left -= step
				}
				if d := s.take(t, distinctly(c, 100)); !d.Allowed {
					t.Errorf("not allowed after the wait of %v: wait %v more", wait, d.Wait)
				}
			})
		}
	}
}

// steppedLimits are limits of each algorithm with a lease.
func steppedLimits(window time.Duration) []*limiter.Limit {
	cooldown := pauses(window/2, window)
	cooldown.Rate.Window = 2 * window
	all := []*limiter.Limit{cooldown}
	for a := range limiter.NumAlgorithms {
		if !a.HasSteps() && !a.HasConversion() {
			l := limit("steps-"+a.String(), 4, window)
			l.Algorithm = a
			all = append(all, l)
		}
	}
	return all
}

// longestWait is the longest wait for one permit of l.
func longestWait(l *limiter.Limit) time.Duration {
	if l.Algorithm.HasSteps() {
		return l.Steps[len(l.Steps)-1]
	}
	return l.Horizon()
}

// fill takes permits of c until it is refused.
func (s *suite) fill(t *testing.T, c []limiter.Claim) {
	t.Helper()
	for n := range 100 {
		if !s.take(t, distinctly(c, n)).Allowed {
			return
		}
	}
	t.Fatal("never refused")
}

// distinctly is c with the n-th value if its limit counts values.
func distinctly(c []limiter.Claim, n int) []limiter.Claim {
	if c[0].Limit.Algorithm.HasValues() {
		c[0].Value = limiter.Key{byte(n), 1}
	}
	return c
}
