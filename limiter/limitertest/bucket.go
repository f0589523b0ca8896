package limitertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// window: a permit comes back exactly one window after it was taken.
func window(_ *testing.T, s *suite) {
	c := oneClaim(s.limit("w", 2, 10*time.Second), s.key(), 1)
	s.allowed(c, 1)
	s.Advance(4 * time.Second)
	s.allowed(c, 1)
	s.denied(c, 6*time.Second)
	s.Advance(6*time.Second - time.Millisecond)
	s.denied(c, time.Millisecond)
	s.Advance(time.Millisecond)
	d := s.allowed(c, 1)
	if d.Outcomes[0].Remaining != 0 || d.Outcomes[0].Wait != 4*time.Second {
		s.t.Fatalf("after the second window began: %+v, want 0 left and 4s", d.Outcomes[0])
	}
	s.Advance(10 * time.Second)
	s.left(c, 2)
	s.allowed(c, 2)
}

// waitIsExact: the wait for n permits is that of the n-th to come back, and then
// they pass at the first try.
func waitIsExact(_ *testing.T, s *suite) {
	for _, count := range []int64{5, 20, 100} {
		l, k := s.limit("x", count, 100*time.Second), s.key()
		for range count {
			s.allowed(oneClaim(l, k, 1), 1)
			s.Advance(500 * time.Millisecond)
		}
		gone := time.Duration(count) * 500 * time.Millisecond
		for n := int64(1); n <= count; n += max(1, count/7) {
			s.denied(oneClaim(l, k, n), 100*time.Second-gone+time.Duration(n-1)*500*time.Millisecond)
		}
		d := s.peek(s.t, oneClaim(l, k, count))
		s.Advance(d.Wait - time.Millisecond)
		s.denied(oneClaim(l, k, count), time.Millisecond)
		s.Advance(time.Millisecond)
		s.allowed(oneClaim(l, k, count), 1)
	}
}

// allOrNone: one refusing limit leaves all others untouched, and is named.
func allOrNone(_ *testing.T, s *suite) {
	a, b, c := s.limit("a", 3, 20*time.Second), s.limit("b", 1, 10*time.Second), s.limit("c", 5, 30*time.Second)
	ka, kb := s.key(), s.key()
	all := []limiter.Claim{{Limit: a, Key: ka, Cost: 1}, {Limit: b, Key: kb, Cost: 1}, {Limit: c, Key: ka, Cost: 2}}
	s.allowed(all, 1)
	d := s.denied(all, 10*time.Second)
	want := []limiter.Outcome{
		{Allowed: true, Remaining: 2},
		{Allowed: false, Remaining: 0, Wait: 10 * time.Second},
		{Allowed: true, Remaining: 3},
	}
	for i, o := range d.Outcomes {
		if o != want[i] {
			s.t.Errorf("outcome %d is %+v, want %+v", i, o, want[i])
		}
	}
	s.left(oneClaim(a, ka, 1), 2)
	s.left(oneClaim(c, ka, 1), 3)
	s.Advance(10 * time.Second)
	s.allowed(all, 1)
	d = s.denied(all, 20*time.Second) // c has 1 left of the 2, b is empty as well
	if !d.Outcomes[0].Allowed || d.Outcomes[1].Allowed || d.Outcomes[2].Allowed {
		s.t.Errorf("outcomes %+v, want b and c to refuse", d.Outcomes)
	}
	var none limiter.Decision
	if err := s.Store.Take(s.t.Context(), nil, &none); err != nil || !none.Allowed || !none.Permit.IsZero() {
		s.t.Errorf("no claims: %+v, %v; want allowed without a permit", none, err)
	}
}

// badClaims: what no store could grant is an error, and takes nothing.
func badClaims(t *testing.T, s *suite) {
	good, k := s.limit("good", 3, 10*time.Second), s.key()
	claim := limiter.Claim{Limit: good, Key: k, Cost: 1}
	for name, c := range map[string]limiter.Claim{
		"cost 0":      {Limit: good, Cost: 0},
		"cost -3":     {Limit: good, Cost: -3},
		"cost 4 of 3": {Limit: good, Cost: 4},
		"above burst": {Limit: &limiter.Limit{Name: "x", Rate: good.Rate, Algorithm: limiter.GCRA, Burst: 2}, Cost: 3},
		"two values":  {Limit: values(5), Cost: 2},
	} {
		c.Key = s.key()
		s.invalid(name, []limiter.Claim{claim, c}, limiter.ErrInvalidCost)
	}
	two := pauses(time.Second)
	two.Rate.Count = 2
	for name, l := range map[string]*limiter.Limit{
		"no limit":        nil,
		"no name":         s.limit("", 3, time.Second),
		"name {":          s.limit("a{b", 3, time.Second),
		"rate 0":          s.limit("x", 0, time.Second),
		"rate 1e17":       s.limit("x", 1e17, time.Second),
		"half a ms":       s.limit("x", 1, time.Millisecond/2),
		"a burst":         {Name: "x", Rate: good.Rate, Burst: 2},
		"no algorithm":    {Name: "x", Rate: good.Rate, Algorithm: limiter.NumAlgorithms},
		"many permits":    LimitOf(limiter.Concurrent, "x", limiter.Rate{Count: limiter.MaxConcurrent + 1, Window: time.Second}),
		"many values":     values(limiter.MaxDistinct + 1),
		"no steps":        pauses(),
		"a long step":     pauses(201 * time.Second),
		"a short step":    pauses(time.Microsecond),
		"falling steps":   pauses(2*time.Second, time.Second),
		"two at a time":   two,
		"steps of no use": {Name: "x", Rate: good.Rate, Steps: []time.Duration{time.Second}},
		"too many steps":  pauses(make([]time.Duration, limiter.MaxSteps+1)...),
	} {
		s.invalid(name, []limiter.Claim{claim, {Limit: l, Key: s.key(), Cost: 1}}, limiter.ErrInvalidLimit)
	}
	s.invalid("the same key", []limiter.Claim{claim, claim}, limiter.ErrInvalidLimit)
	s.left([]limiter.Claim{claim}, 3)
	var many []limiter.Claim
	for i := range limiter.MaxClaims + 1 {
		many = append(many, limiter.Claim{Limit: s.limit(fmt.Sprint("many", i), int64(3+i), time.Second), Key: k, Cost: 1})
	}
	s.invalid("many claims", many, limiter.ErrInvalidLimit)
	s.allowed(many[1:], 3)
}

// invalid checks that no call of a Store accepts claims.
func (s *suite) invalid(name string, claims []limiter.Claim, want error) {
	s.t.Helper()
	var d limiter.Decision
	for call, err := range map[string]error{
		"take": s.Store.Take(s.t.Context(), claims, &d), "peek": s.Store.Peek(s.t.Context(), claims, &d),
		"refund": s.Store.Refund(s.t.Context(), claims, limiter.Permit{At: time.UnixMilli(1)}),
	} {
		if !errors.Is(err, want) {
			s.t.Errorf("%s: %s says %v, want %v", name, call, err, want)
		}
	}
}

// clockSetBack: no wait is longer than a window, nothing is taken twice, and the
// window heals by itself.
func clockSetBack(_ *testing.T, s *suite) {
	for _, count := range s.sizes(4, 40, 400) {
		c := oneClaim(s.limit("back", count, 10*time.Second), s.key(), 1)
		s.allowed(c, int(count))
		s.Advance(-time.Hour)
		s.denied(c, 10*time.Second)
		s.Advance(10*time.Second - time.Millisecond)
		s.denied(c, time.Millisecond)
		s.Advance(time.Millisecond)
		s.allowed(c, int(count))
		s.denied(c, 10*time.Second)
		s.Advance(time.Hour)
	}
}

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
