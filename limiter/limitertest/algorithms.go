package limitertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// rated are the algorithms whose limits need no more than a rate.
func rated() (all []limiter.Algorithm) {
	for a := range limiter.NumAlgorithms {
		if !a.HasValues() && !a.HasSteps() && !a.HasConversion() {
			all = append(all, a)
		}
	}
	return all
}

// mixed: a decision over all algorithms at once takes everything or nothing.
func mixed(_ *testing.T, s *suite) {
	k := s.key()
	var claims []limiter.Claim
	for a := range limiter.NumAlgorithms {
		claims = append(claims, valued(LimitOf(a, "mixed-"+a.String(), limiter.Rate{Count: 4, Window: 100 * time.Second}), k, k)...)
	}
	s.Advance(time.Duration(100_000-s.peek(s.t, claims).At.UnixMilli()%100_000) * time.Millisecond) // a sliding window begins
	first := s.allowed(claims, 1)
	s.Advance(20 * time.Second) // the pause of a cooldown is over
	s.allowed(claims[:1], 3)
	d := s.take(s.t, claims)
	for i, o := range d.Outcomes {
		if left := max(1, claims[i].Limit.Rate.Count-1); o.Allowed != (i > 0) || i > 0 && o.Remaining != left {
			s.t.Errorf("%s: %+v after a refusal by the first", claims[i].Limit.Name, o)
		}
	}
	s.refund(s.t, claims, first.Permit)
	s.refund(s.t, claims, first.Permit)
	for _, c := range claims[1:] {
		s.left([]limiter.Claim{c}, c.Limit.Rate.Count)
	}
	s.left(claims[:1], 1)
}

// leases: a permit that is held comes back when it is given back, or when its
// lease is over and was not renewed.
func leases(t *testing.T, s *suite) {
	l := LimitOf(limiter.Concurrent, "inflight", limiter.Rate{Count: 2, Window: 10 * time.Second})
	c := oneClaim(l, s.key(), 1)
	a, b := s.allowed(c, 1), s.allowed(c, 1)
	for range 5 {
		s.Advance(6 * time.Second)
		s.must(s.admin().Renew(t.Context(), c, a.Permit))
	}
	s.left(c, 1) // b died
	if err := s.admin().Renew(t.Context(), c, b.Permit); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew after the lease: %v", err)
	}
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.refund(t, c, a.Permit)
	s.refund(t, c, a.Permit)
	s.left(c, 1)
	if err := s.admin().Renew(t.Context(), c, a.Permit); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew after giving back: %v", err)
	}
	for range 2 {
		s.admin().Report(oneClaim(l, c[0].Key, 1), b.Permit) // its holder lives
		s.deniedByReports(c)
	}
	s.refund(t, c, b.Permit)
	s.refund(t, c, b.Permit)
	s.left(c, 1)
	l.Rate.Count = 300 // more than a log ever merges
	held := []limiter.Permit{}
	for range 299 {
		held = append(held, s.allowed(c, 1).Permit)
	}
	s.denied(c, 10*time.Second)
	for i, p := range held {
		s.refund(t, c, p)
		s.left(c, int64(i+1))
	}
	bucket := oneClaim(limit("no-lease", 1, 10*time.Second), s.key(), 1)
	p := s.allowed(bucket, 1).Permit
	s.Advance(6 * time.Second)
	if err := s.admin().Renew(t.Context(), bucket, p); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew of what is no lease: %v", err)
	}
	s.denied(bucket, 4*time.Second)
}

// keeping: an operator resets, grants, bans and unbans one key of any algorithm.
func keeping(t *testing.T, s *suite) {
	for _, count := range s.sizes(5, 40, 300) {
		for _, a := range rated() {
			l := LimitOf(a, fmt.Sprintf("keep-%s-%d", a, count), limiter.Rate{Count: count, Window: 100 * time.Second})
			k := s.key()
			c, other := oneClaim(l, k, 1), oneClaim(l, s.key(), 1)
			s.Advance(time.Duration(100_000-s.peek(t, c).At.UnixMilli()%100_000) * time.Millisecond)
			s.allowed(other, 1)
			first := s.allowed(c, int(count)-1)
			s.allowed(c, 1)

			s.must(s.admin().Grant(t.Context(), oneClaim(l, k, 2)))
			s.left(c, 2)
			s.allowed(c, 2)
			s.must(s.admin().Grant(t.Context(), oneClaim(l, k, count)))
			s.must(s.admin().Grant(t.Context(), oneClaim(l, k, 1)))
			s.left(c, count)

			s.allowed(c, 3)
			s.must(s.admin().Reset(t.Context(), c))
			s.left(c, count)
			s.allowed(c, int(count)-1)
			s.refund(t, c, first.Permit)
			s.left(c, 1)

			s.must(s.admin().Ban(t.Context(), c, time.Hour))
			d := s.banned(c, time.Hour)
			s.Advance(time.Minute)
			s.banned(append(c, limiter.Claim{Limit: limit("free", 9, time.Second), Key: k, Cost: 1}), 59*time.Minute)
			if d.Outcomes[0].Remaining != 0 {
				t.Errorf("%+v while banned", d.Outcomes[0])
			}
			s.left(other, s.peek(t, other).Outcomes[0].Remaining)
			s.Advance(59*time.Minute - time.Millisecond)
			s.banned(c, time.Millisecond)
			s.Advance(time.Millisecond)
			s.allowed(c, int(count))

			s.must(s.admin().Ban(t.Context(), c, time.Hour))
			s.must(s.admin().Ban(t.Context(), c, 0))
			if d := s.peek(t, c); d.Outcomes[0].Banned {
				t.Error("banned after the ban was lifted")
			}
			s.must(s.admin().Ban(t.Context(), c, time.Hour))
			s.must(s.admin().Reset(t.Context(), c))
			s.allowed(c, 1)
		}
	}
	bad := oneClaim(limit("bad", 0, time.Second), s.key(), 1)
	_, err := s.admin().Inspect(t.Context(), bad)
	for name, err := range map[string]error{
		"inspect": err,
		"renew":   s.admin().Renew(t.Context(), bad, limiter.Permit{}), "reset": s.admin().Reset(t.Context(), bad),
		"grant": s.admin().Grant(t.Context(), bad), "ban": s.admin().Ban(t.Context(), bad, time.Hour),
		"ban back": s.admin().Ban(t.Context(), nil, -time.Hour), "ban long": s.admin().Ban(t.Context(), nil, 2*limiter.MaxWindow),
	} {
		if !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s: %v, want ErrLimit", name, err)
		}
	}
}

// banned takes and wants a refusal by a ban that lasts so long.
func (s *suite) banned(claims []limiter.Claim, wait time.Duration) limiter.Decision {
	s.t.Helper()
	var d limiter.Decision
	if err := s.Store.Take(s.t.Context(), claims, &d); err != nil {
		s.t.Fatal(err)
	}
	if d.Allowed || !d.Outcomes[0].Banned || d.Wait != wait {
		s.t.Fatalf("%+v, want banned for %v", d, wait)
	}
	return d
}

// concurrent: 32 callers share three keys while the clock runs on, and no window
// by the store's own clock holds more than the rate; afterwards all comes back.
func concurrent(t *testing.T, s *suite) {
	const callers = 32
	calls := min(150, max(30, s.steps()))
	l, total := s.limit("hot", 40, 10*time.Second), s.limit("total", 300, 10*time.Second)
	keys, all := []limiter.Key{s.key(), s.key(), s.key()}, s.key()
	var mu sync.Mutex
	logs := make(map[limiter.Key]log)

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
						logs[c.Key] = append(logs[c.Key], grantRecord{at: d.At.UnixMilli(), n: c.Cost})
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
	for _, k := range append(keys, all) {
		taken, rate := logs[k], l.Rate
		if k == all {
			rate = total.Rate
		}
		slices.SortFunc(taken, func(a, b grantRecord) int { return int(a.at - b.at) })
		worst := taken.fullestWindow(rate.Window)
		if worst > rate.Count || worst < rate.Count/2 {
			t.Errorf("%d permits in the fullest window of %s", worst, rate)
		}
	}
	s.Advance(10*time.Second + 10*time.Second/64)
	s.left(oneClaim(l, keys[0], 1), 40)
	s.left(oneClaim(total, all, 1), 300)
}

// values is a limit of so many different values in 100 s.
func values(count int64) *limiter.Limit {
	return LimitOf(limiter.Distinct, "values", limiter.Rate{Count: count, Window: 100 * time.Second})
}

// with is one claim of l for k with a value.
func with(l *limiter.Limit, k limiter.Key, value string) []limiter.Claim {
	return valued(l, k, limiter.KeyOf(value))
}

// distinct: different values are counted, each until a window after its last use.
func distinct(t *testing.T, s *suite) {
	l, k := values(2), s.key()
	use := func(v string) limiter.Decision { t.Helper(); return s.allowed(with(l, k, v), 1) }
	use("a")
	s.Advance(40 * time.Second)
	for range 3 {
		if d := use("b"); d.Outcomes[0].Remaining != 0 || d.Outcomes[0].Wait != 0 {
			t.Errorf("%+v; want nothing left, and no wait for the same value", d.Outcomes[0])
		}
	}
	s.denied(with(l, k, "c"), 60*time.Second)
	s.left(with(l, s.key(), "c"), 2)
	use("a") // stands from now on
	s.denied(with(l, k, "c"), 100*time.Second)
	s.Advance(100*time.Second - time.Millisecond)
	s.denied(with(l, k, "c"), time.Millisecond)
	s.Advance(time.Millisecond)
	s.left(with(l, k, "c"), 2)

	// What is given back is as if it had not been: the use before counts again.
	first := use("a")
	s.Advance(30 * time.Second)
	second := use("a")
	b := use("b")
	s.refund(t, with(l, k, "a"), second.Permit)
	s.refund(t, with(l, k, "a"), second.Permit)
	s.denied(with(l, k, "c"), 70*time.Second)
	s.refund(t, with(l, k, "a"), first.Permit)
	s.left(with(l, k, "c"), 1)
	c := use("c")
	s.refund(t, with(l, k, "a"), first.Permit)
	s.denied(with(l, k, "a"), 100*time.Second)
	s.refund(t, with(l, k, "b"), b.Permit)
	s.refund(t, with(l, k, "c"), c.Permit)
	s.left(with(l, k, "d"), 2)

	// Refused by another limit, a value does not stand.
	none := limit("none", 1, time.Second)
	s.allowed(oneClaim(none, k, 1), 1)
	if d := s.take(t, append(with(l, k, "d"), oneClaim(none, k, 1)...)); d.Allowed || !d.Outcomes[0].Allowed {
		t.Errorf("%+v", d)
	}
	s.left(with(l, k, "d"), 2)

	for _, do := range []func() error{
		func() error { return s.admin().Grant(t.Context(), with(l, k, "")) },
		func() error { return s.admin().Reset(t.Context(), with(l, k, "")) },
	} {
		k = s.key()
		use("a")
		s.Advance(time.Second)
		use("b")
		s.must(do())
		use("c")
	}
	s.must(s.admin().Ban(t.Context(), with(l, k, ""), time.Hour))
	s.banned(with(l, k, "c"), time.Hour)
}

// pauses is a cooldown that begins again after 200 s.
func pauses(steps ...time.Duration) *limiter.Limit {
	l := LimitOf(limiter.Cooldown, "pauses", limiter.Rate{Count: 1, Window: 200 * time.Second})
	l.Steps = steps
	return l
}

// cooldown: each pause is longer than the one before, up to the last step.
func cooldown(t *testing.T, s *suite) {
	l := pauses(10*time.Second, 20*time.Second, 90*time.Second)
	c := oneClaim(l, s.key(), 1)
	var permits []limiter.Permit
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 90 * time.Second, 90 * time.Second} {
		permits = append(permits, s.allowed(c, 1).Permit)
		s.denied(c, pause)
		s.Advance(pause - time.Millisecond)
		s.denied(c, time.Millisecond)
		s.Advance(time.Millisecond)
		s.left(c, 1)
	}
	s.Advance(110*time.Second - time.Millisecond) // a millisecond before it begins again
	last := s.allowed(c, 1)
	s.denied(c, 90*time.Second)
	s.refund(t, c, last.Permit)
	s.refund(t, c, last.Permit)
	s.Advance(time.Millisecond)
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	for _, p := range permits {
		s.refund(t, c, p)
	}
	s.denied(c, 10*time.Second)

	// One that is given back is as if it had not been.
	c = oneClaim(l, s.key(), 1)
	first := s.allowed(c, 1)
	s.Advance(15 * time.Second)
	second := s.allowed(c, 1)
	s.refund(t, c, first.Permit)
	s.denied(c, 10*time.Second)
	s.refund(t, c, second.Permit)
	s.left(c, 1)

	s.allowed(c, 1)
	s.must(s.admin().Reset(t.Context(), c))
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.must(s.admin().Grant(t.Context(), c))
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.must(s.admin().Ban(t.Context(), c, time.Hour))
	s.banned(c, time.Hour)

	// Many permits leave few entries, and the level stays.
	c = oneClaim(pauses(time.Millisecond, 2*time.Millisecond), s.key(), 1)
	for range 3 * limiter.MaxSteps {
		s.allowed(c, 1)
		s.Advance(2 * time.Millisecond)
	}
	s.allowed(c, 1)
	s.denied(c, 2*time.Millisecond)
}
