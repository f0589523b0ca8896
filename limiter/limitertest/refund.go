package limitertest

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// refundOnce: exactly what one decision took comes back, in all its limits, and
// only once however often it is asked for.
func refundOnce(t *testing.T, s *suite) {
	for _, count := range s.sizes(5, 50, 500) {
		a, b := limit("a", count, 10*time.Second), limit("b", 2*count, 20*time.Second)
		k := s.key()
		both := []limiter.Claim{{Limit: a, Key: k, Cost: 1}, {Limit: b, Key: k, Cost: 2}}
		first := s.allowed(both, 1)
		s.Advance(time.Second)
		second := s.allowed(both, int(count)-1)
		s.denied(both, 19*time.Second)
		for range 3 {
			s.refund(t, both, second.Permit)
			s.left(oneClaim(a, k, 1), 1)
			s.left(oneClaim(b, k, 1), 2)
		}
		s.allowed(both, 1)
		s.denied(both, 19*time.Second)
		for range 2 {
			s.refund(t, both, first.Permit)
			s.left(oneClaim(a, k, 1), 1)
		}
		s.allowed(both, 1)
		s.denied(oneClaim(a, k, 1), 10*time.Second) // the first second's permit is gone
		s.refund(t, both, limiter.Permit{})
		if count < 128 { // nothing is merged: an id of nobody is told from one that was
			s.refund(t, both, limiter.Permit{ID: [16]byte{1}, At: first.At})
		}
		s.refund(t, nil, first.Permit)
		s.left(oneClaim(a, k, 1), 0)
	}
}

// refundAfterReturn: what came back by itself is not given back again.
func refundAfterReturn(t *testing.T, s *suite) {
	for _, count := range s.sizes(2, 40, 400) {
		c := oneClaim(limit("late", count, 10*time.Second), s.key(), 1)
		old := s.allowed(c, 1)
		s.Advance(5 * time.Second)
		s.allowed(c, int(count)-1)
		s.Advance(5 * time.Second)
		s.left(c, 1)
		s.refund(t, c, old.Permit)
		s.left(c, 1)
		s.allowed(c, 1)
		s.refund(t, c, old.Permit)
		s.left(c, 0)
	}
}

// refundMerged: also where a store merges what was taken, each decision gives
// back its permits at most once, and the latest ones for sure.
func refundMerged(t *testing.T, s *suite) {
	count := min(1000, 50*int64(s.steps()))
	some := count / 5
	c := oneClaim(limit("merged", count, 100*time.Second), s.key(), 1)
	var permits []limiter.Permit
	for range count {
		permits = append(permits, s.allowed(c, 1).Permit)
		s.Advance(10 * time.Millisecond)
	}
	s.left(c, 0)
	latest := permits[count-some:]
	for i, p := range latest {
		for range 2 {
			s.refund(t, c, p)
			s.left(c, int64(i+1))
		}
	}
	s.allowed(c, int(some))
	s.left(c, 0)
	for _, p := range latest {
		s.refund(t, c, p)
	}
	s.left(c, 0)
	for _, p := range permits {
		s.refund(t, c, p)
	}
	if left := s.peek(t, c).Outcomes[0].Remaining; left > count-some {
		t.Fatalf("%d left after all %d were given back, %d of them before", left, count, some)
	}
	s.Advance(200 * time.Second)
	s.left(c, count)
}

// refundPart: a claim that costs less than what was taken returns that much, once.
func refundPart(t *testing.T, s *suite) {
	for _, count := range s.sizes(20, 100, 500) {
		l, k := limit("part", count, 10*time.Second), s.key()
		c := func(cost int64) []limiter.Claim { return oneClaim(l, k, cost) }
		before := s.allowed(c(3), 1)
		s.Advance(time.Second)
		p := s.allowed(c(10), 1).Permit
		for range 3 {
			s.refund(t, c(4), p)
			s.left(c(1), count-3-6)
		}
		s.refund(t, c(6), p)
		s.refund(t, c(10), p)
		s.left(c(1), count-3-6)
		s.refund(t, c(3), before.Permit)
		s.left(c(1), count-6)
		s.allowed(c(1), int(count)-6)
		s.denied(c(1), 10*time.Second)
		s.Advance(10 * time.Second)
		s.left(c(1), count)
		s.refund(t, c(2), p) // expired
		s.left(c(1), count)
	}
}

// refundPartOfEach: whatever counts requests returns a part once.
func refundPartOfEach(_ *testing.T, s *suite) {
	for _, a := range rated() {
		if a.HasLeases() {
			continue
		}
		l, k := limit("part", 100, 100*time.Second), s.key()
		l.Algorithm = a
		p := s.allowed(oneClaim(l, k, 10), 1).Permit
		for _, cost := range []int64{4, 4, 6, 10} {
			s.refund(s.t, oneClaim(l, k, cost), p)
			s.left(oneClaim(l, k, 1), 94)
		}
	}
}
