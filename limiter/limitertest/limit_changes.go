package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// LimitOf is a limit of any algorithm with all that it needs. One with steps has one permit, and pauses of an eighth and of
// half of its window.
func LimitOf(a limiter.Algorithm, name string, rate limiter.Rate) *limiter.Limit {
	l := &limiter.Limit{Name: name, Rate: rate, Algorithm: a}
	switch {
	case a.HasSteps():
		l.Rate.Count, l.Steps = 1, []time.Duration{rate.Window / 8, rate.Window / 2}
	case a.HasConversion():
		l.Noted, l.Conversion = true, 50
	}
	return l
}

// limitChanges: a limit whose rate, burst or window is lowered or raised at any time decides at once as it should: what was
// taken stays taken, no wait is longer than the horizon, and after the wait a claim is granted.
func limitChanges(t *testing.T, s *suite) {
	type version struct {
		count, burst int64
		window       time.Duration
	}
	const hour = time.Hour
	changes := map[string][2]version{
		"rate":            {{count: 30, window: hour}, {count: 2, window: hour}},
		"window":          {{count: 20, window: hour}, {count: 20, window: 24 * hour}},
		"rate and window": {{count: 25, window: hour}, {count: 3, window: 20 * hour}},
		"tiny":            {{count: 40, window: 24 * hour}, {count: 1, window: time.Millisecond}},
		"long":            {{count: 30, window: time.Minute}, {count: 1, window: limiter.MaxWindow}},
		"burst":           {{count: 40, burst: 30, window: hour}, {count: 1, burst: 3, window: hour}},
	}
	for a := range limiter.NumAlgorithms {
		for name, versions := range changes {
			for _, isRaised := range []bool{false, true} {
				if versions[0].burst > 0 && !a.HasBurst() {
					continue
				}
				if isRaised {
					versions[0], versions[1] = versions[1], versions[0]
				}
				of := func(v version) *limiter.Limit {
					l := LimitOf(a, "changes-"+a.String(), limiter.Rate{Count: v.count, Window: v.window})
					if a.HasSteps() { // in place of a count: the more, the less it grants
						l.Steps = []time.Duration{max(time.Millisecond, (v.window / time.Duration(1+v.count)).Truncate(time.Millisecond)), v.window}
					}
					l.Burst = v.burst
					return l
				}
				t.Run(fmt.Sprint(a, " ", name, isRaised), func(t *testing.T) { s.changeLimit(t, of(versions[0]), of(versions[1])) })
			}
		}
	}
}

// changeLimit takes what there is of one version of a limit, then of another one, and of the first one again.
func (s *suite) changeLimit(t *testing.T, first, second *limiter.Limit) {
	k := s.key()
	claims := func(l *limiter.Limit, n int) []limiter.Claim {
		return []limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: limiter.KeyOf("value", fmt.Sprint(n))}}
	}
	for n := 0; s.take(t, claims(first, n)).Allowed && n < 200; n++ {
	}
	s.Advance(time.Millisecond)
	for i, l := range []*limiter.Limit{second, first} {
		s.peek(t, claims(l, 1000+i))
		d := s.take(t, claims(l, 1000+i))
		if d.Allowed && first.Rate.Window == second.Rate.Window && l.Rate.Count < first.Rate.Count {
			t.Errorf("lowered to %s it grants: %+v", l.Rate, d)
		}
		if !d.Allowed {
			s.Advance(d.Wait)
			if d := s.take(t, claims(l, 1000+i)); !d.Allowed {
				t.Errorf("%s refuses after the wait it told: %+v", l.Rate, d)
			}
		}
	}
}
