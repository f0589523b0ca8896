package limitertest

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// values is a limit of so many different values in 100 s.
func values(count int64) *limiter.Limit {
	l := limit("values", count, 100*time.Second)
	l.Algorithm = limiter.Distinct
	return l
}

// with is one claim of l for k with a value.
func with(l *limiter.Limit, k limiter.Key, value string) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: limiter.KeyOf(value)}}
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

	admin := s.Store.(limiter.AdminStore)
	for _, do := range []func() error{
		func() error { return admin.Grant(t.Context(), with(l, k, "")) },
		func() error { return admin.Reset(t.Context(), with(l, k, "")) },
	} {
		k = s.key()
		use("a")
		s.Advance(time.Second)
		use("b")
		if err := do(); err != nil {
			t.Fatal(err)
		}
		use("c")
	}
	if err := admin.Ban(t.Context(), with(l, k, ""), time.Hour); err != nil {
		t.Fatal(err)
	}
	s.banned(with(l, k, "c"), time.Hour)

	badValues(t, s)
}

// badValues: a value costs one, and there are not too many.
func badValues(t *testing.T, s *suite) {
	k := s.key()
	for name, bad := range map[string]limiter.Claim{
		"cost":  {Limit: values(5), Key: k, Cost: 2},
		"count": {Limit: values(limiter.MaxDistinct + 1), Key: k, Cost: 1},
	} {
		var d limiter.Decision
		if err := s.Store.Take(t.Context(), []limiter.Claim{bad}, &d); !errors.Is(err, limiter.ErrInvalidCost) && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("bad %s: %v", name, err)
		}
	}
}
