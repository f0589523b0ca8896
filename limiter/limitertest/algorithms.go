package limitertest

import (
	"errors"
	"fmt"
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
	for _, a := range rated() {
		l := limit("mixed-"+a.String(), 4, 100*time.Second)
		l.Algorithm = a
		claims = append(claims, limiter.Claim{Limit: l, Key: k, Cost: 1})
	}
	s.Advance(time.Duration(100_000-s.peek(s.t, claims).At.UnixMilli()%100_000) * time.Millisecond) // a sliding window begins
	first := s.allowed(claims, 1)
	s.Advance(time.Second)
	s.allowed(claims[:1], 3)
	d := s.take(s.t, claims)
	for i, o := range d.Outcomes {
		if o.Allowed != (i > 0) || i > 0 && o.Remaining != 3 {
			s.t.Errorf("%s: %+v after a refusal by the first", claims[i].Limit.Name, o)
		}
	}
	s.refund(s.t, claims, first.Permit)
	s.refund(s.t, claims, first.Permit)
	for _, c := range claims[1:] {
		s.left([]limiter.Claim{c}, 4)
	}
	s.left(claims[:1], 1)
}

// promises: each algorithm's worst window is what its comment says, and not less.
func promises(t *testing.T, s *suite) {
	const count, length = 60, 60_000
	for _, a := range rated() {
		most := 1.0
		if a.MayDouble() || a.HasBurst() {
			most = 2
		}
		l := limit("promise", count, length*time.Millisecond)
		l.Algorithm = a
		c := oneClaim(l, s.key(), 1)
		var m model
		for i := range min(900, 20*s.steps()) {
			pause := time.Duration(i%7*i%11*20) * time.Millisecond
			if i%130 == 0 {
				pause = 45 * time.Second // quiet, then a burst
			}
			s.Advance(pause)
			m.now += pause
			if d := s.take(t, c); d.Allowed {
				m.take(1, d.Permit)
			}
		}
		worst := float64(m.fullestWindow(length*time.Millisecond)) / count
		if worst > most || worst < 0.9 {
			t.Errorf("%s: the fullest window has %.2f x the rate, want 0.9 to %.2f", a, worst, most)
		}
	}
}

// leases: a permit that is held comes back when it is given back, or when its
// lease is over and was not renewed.
func leases(t *testing.T, s *suite) {
	l := limit("inflight", 2, 10*time.Second)
	l.Algorithm = limiter.Concurrent
	admin, c := s.Store.(limiter.AdminStore), oneClaim(l, s.key(), 1)
	a, b := s.allowed(c, 1), s.allowed(c, 1)
	for range 5 {
		s.Advance(6 * time.Second)
		if err := admin.Renew(t.Context(), c, a.Permit); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	s.left(c, 1) // b died
	if err := admin.Renew(t.Context(), c, b.Permit); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew after the lease: %v", err)
	}
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.refund(t, c, a.Permit)
	s.refund(t, c, a.Permit)
	s.left(c, 1)
	if err := admin.Renew(t.Context(), c, a.Permit); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew after giving back: %v", err)
	}
	l.Rate.Count = limiter.MaxConcurrent + 1
	var d limiter.Decision
	if err := s.Store.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("more than the most concurrent: %v", err)
	}
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
	if err := admin.Renew(t.Context(), bucket, p); !errors.Is(err, limiter.ErrNotHeld) {
		t.Errorf("renew of what is no lease: %v", err)
	}
	s.denied(bucket, 4*time.Second)
}

// keeping: an operator resets, grants, bans and unbans one key of any algorithm.
func keeping(t *testing.T, s *suite) {
	admin := s.Store.(limiter.AdminStore)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range s.sizes(5, 40, 300) {
		for _, a := range rated() {
			l := limit(fmt.Sprintf("keep-%s-%d", a, count), count, 100*time.Second)
			l.Algorithm = a
			k := s.key()
			c, other := oneClaim(l, k, 1), oneClaim(l, s.key(), 1)
			s.Advance(time.Duration(100_000-s.peek(t, c).At.UnixMilli()%100_000) * time.Millisecond)
			s.allowed(other, 1)
			first := s.allowed(c, int(count)-1)
			s.allowed(c, 1)

			check(admin.Grant(t.Context(), oneClaim(l, k, 2)))
			s.left(c, 2)
			s.allowed(c, 2)
			check(admin.Grant(t.Context(), oneClaim(l, k, count)))
			check(admin.Grant(t.Context(), oneClaim(l, k, 1)))
			s.left(c, count)

			s.allowed(c, 3)
			check(admin.Reset(t.Context(), c))
			s.left(c, count)
			s.allowed(c, int(count)-1)
			s.refund(t, c, first.Permit)
			s.left(c, 1)

			check(admin.Ban(t.Context(), c, time.Hour))
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

			check(admin.Ban(t.Context(), c, time.Hour))
			check(admin.Ban(t.Context(), c, 0))
			if d := s.peek(t, c); d.Outcomes[0].Banned {
				t.Error("banned after the ban was lifted")
			}
			check(admin.Ban(t.Context(), c, time.Hour))
			check(admin.Reset(t.Context(), c))
			s.allowed(c, 1)
		}
	}
	bad := oneClaim(limit("bad", 0, time.Second), s.key(), 1)
	for name, err := range map[string]error{
		"renew": admin.Renew(t.Context(), bad, limiter.Permit{}), "reset": admin.Reset(t.Context(), bad),
		"grant": admin.Grant(t.Context(), bad), "ban": admin.Ban(t.Context(), bad, time.Hour),
		"ban back": admin.Ban(t.Context(), nil, -time.Hour), "ban long": admin.Ban(t.Context(), nil, 2*limiter.MaxWindow),
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
