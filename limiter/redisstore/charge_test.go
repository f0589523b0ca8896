package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// What a request has cost more while Redis is away counts when it is back, once, before the next decision.
func TestCharge_WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
		c := claim(100, time.Hour, 10)
		c[0].Limit.Algorithm, c[0].Limit.Name = a, "charged."+a.String()
		p := s.allowed(c, 1).Permit
		s.server.Kill()
		for range 2 {
			c[0].Cost = 30
			if err := s.store.Charge(t.Context(), c, p); err != nil {
				t.Fatalf("%s: %v", a, err)
			}
		}
		s.server.Restart()
		s.quiet()
		c[0].Cost = 1
		want := int64(70) // Redis has no file, and has forgotten what was granted
		if s.left(c, want); s.store.Charge(t.Context(), c, p) != nil {
			t.Errorf("%s: charged again: an error", a)
		}
		s.left(c, want)
	}
}

// Of two nodes each knows what the other has charged.
func TestCharge_OfTwoNodes(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	other := s.other("")
	c := claim(100, time.Hour, 40)
	p := s.allowed(c, 1).Permit
	c[0].Cost = 90
	s.check(other.store.Charge(t.Context(), c, p))
	if err := s.store.Charge(t.Context(), c, p); err != nil { // the same, of a log: it knows the ID
		t.Fatal(err)
	}
	c[0].Cost = 1
	s.denied(c, time.Hour)
	s.advance(time.Hour)
	s.left(c, 100)

	counter := claim(100, time.Hour, 10)
	counter[0].Limit.Name, counter[0].Limit.Algorithm = "counter", limiter.FixedWindow
	p = s.allowed(counter, 1).Permit
	for _, by := range []*testStore{s, other, s, other} {
		s.check(by.store.Charge(t.Context(), counter, p))
	}
	s.left(counter, 70) // each process once
}
