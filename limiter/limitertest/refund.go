package limitertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// refundOnce: exactly what one decision took comes back, in all its limits, and
// only once however often it is asked for.
func refundOnce(t *testing.T, s *suite) {
	for _, count := range s.sizes(5, 50, 500) {
		a, b := s.limit("a", count, 10*time.Second), s.limit("b", 2*count, 20*time.Second)
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
		c := oneClaim(s.limit("late", count, 10*time.Second), s.key(), 1)
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
	count := min(1000, 25*int64(s.steps())) // more than are not merged
	some := count / 5
	c := oneClaim(s.limit("merged", count, 100*time.Second), s.key(), 1)
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
		l, k := s.limit("part", count, 10*time.Second), s.key()
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
	for _, a := range notable() {
		l, k := LimitOf(a, "part", limiter.Rate{Count: 100, Window: 100 * time.Second}), s.key()
		p := s.allowed(oneClaim(l, k, 10), 1).Permit
		for _, cost := range []int64{4, 4, 6, 10} {
			s.refund(s.t, oneClaim(l, k, cost), p)
			s.left(oneClaim(l, k, 1), 94)
		}
	}
}

// notable are the algorithms whose permits can be noted.
func notable() (all []limiter.Algorithm) {
	for _, a := range rated() {
		if !a.HasLeases() {
			all = append(all, a)
		}
	}
	return all
}

// notedLimits are the windows of one noted limit.
func notedLimits(a limiter.Algorithm, name string, rates ...limiter.Rate) (all []*limiter.Limit) {
	for _, r := range rates {
		l := LimitOf(a, fmt.Sprintf("%s-%s:%dms", name, a, r.Window.Milliseconds()), r)
		l.Noted = true
		all = append(all, l)
	}
	return all
}

// claimsOf are claims on the windows of one limit.
func claimsOf(limits []*limiter.Limit, k, subject limiter.Key) (all []limiter.Claim) {
	for _, l := range limits {
		all = append(all, limiter.Claim{Limit: l, Key: k, Cost: 1, Value: subject})
	}
	return all
}

// returns calls Return and checks of how many decisions it returned permits.
func (s *suite) returns(limits []*limiter.Limit, subject limiter.Key, want int) {
	s.t.Helper()
	got, err := s.admin().Return(s.t.Context(), limits, subject)
	if err != nil || got != want {
		s.t.Fatalf("permits of %d decisions returned, %v; want %d", got, err, want)
	}
}

// returned: what was noted under a subject is returned, whatever the key, and nothing else.
func returned(t *testing.T, s *suite) {
	for _, a := range notable() {
		limits := notedLimits(a, "unused", limiter.Rate{Count: 4, Window: 20 * time.Second}, limiter.Rate{Count: 6, Window: 200 * time.Second})
		s.Advance(time.Duration(200_000-s.peek(t, claimsOf(limits, s.key(), s.key())).At.UnixMilli()%200_000) * time.Millisecond) // a sliding window begins
		one, other, ann, bob := s.key(), s.key(), s.key(), s.key()
		left := func(k limiter.Key, short, long int64) {
			t.Helper()
			claims := claimsOf(limits, k, limiter.Key{})
			s.left(claims[:1], short)
			s.left(claims[1:], long)
		}
		s.returns(limits, ann, 0)
		s.allowed(claimsOf(limits, one, ann), 2)
		s.allowed(claimsOf(limits, other, ann), 1)
		refunded := s.allowed(claimsOf(limits, one, ann), 1)
		s.allowed(claimsOf(limits, one, bob), 1)
		s.refused(claimsOf(limits, one, ann))
		s.allowed(append(claimsOf(limits, other, ann), oneClaim(limit("plain", 9, time.Minute), one, 2)...), 1)
		s.refund(t, claimsOf(limits, one, ann), refunded.Permit)
		left(one, 1, 3)
		left(other, 2, 4)
		s.returns(limits, ann, 4)
		left(one, 3, 5)
		left(other, 4, 6)
		s.returns(limits, ann, 0)
		s.returns(limits, s.key(), 0)
		left(one, 3, 5)

		s.allowed(claimsOf(limits, one, limiter.Key{}), 1) // without a subject
		s.returns(limits, limiter.Key{}, 0)
		s.allowed(claimsOf(limits, other, ann), 1)
		s.Advance(20 * time.Second)
		s.allowed(claimsOf(limits, other, ann), 1)
		s.returns(limits, ann, 2) // of the first in the longer window
		s.Advance(400 * time.Second)
		s.allowed(claimsOf(limits, other, ann), 1)
		s.Advance(400 * time.Second)
		s.returns(limits, ann, 0)
		left(one, 4, 6)
		left(other, 4, 6)

		wide := notedLimits(a, "unused", limiter.Rate{Count: 90, Window: 20 * time.Second}) // a rate of its own
		s.allowed(claimsOf(wide, one, bob), 7)
		s.returns(append(slices.Clone(limits), wide...), bob, 7)
		s.left(claimsOf(wide, one, bob), 90)

		for range 5 {
			if d, beside, err := TakeGroups(t.Context(), s.Store, claimsOf(limits, one, ann)[:1], claimsOf(limits, other, bob)); err != nil || d.Allowed && beside[0].Failed {
				t.Fatal(err, beside)
			}
		}
		s.returns(limits, bob, 4)
		s.returns(limits, ann, 4)
		left(other, 4, 6)
	}
}

// returnedOnce: a permit is returned once, however many calls return or refund it at a time.
func returnedOnce(t *testing.T, s *suite) {
	for _, a := range notable() {
		limits := notedLimits(a, "once", limiter.Rate{Count: 20, Window: 100 * time.Second})
		k, subject, other := s.key(), s.key(), s.key()
		s.allowed(claimsOf(limits, k, other), 10)
		claims := claimsOf(limits, k, subject)
		var permits []limiter.Permit
		for range 10 {
			permits = append(permits, s.allowed(claims, 1).Permit)
		}
		var all sync.WaitGroup
		var decisions atomic.Int64
		for i := range 8 {
			all.Go(func() {
				n, err := s.admin().Return(t.Context(), limits, subject)
				if err != nil {
					t.Error(err)
				}
				decisions.Add(int64(n))
			})
			all.Go(func() {
				if err := s.Store.Refund(t.Context(), claims, permits[i]); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := decisions.Load(); n < 2 || n > 10 {
			t.Errorf("%s: permits of %d decisions returned", a, n)
		}
		s.left(claims, 10)
	}
}

// returnedRandom: a return is what refunds by ID of all that is noted are. Each step is taken on
// two sets of keys: the permits of one are returned by subject, those of the other by ID.
func returnedRandom(t *testing.T, s *suite) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range min(60, 2+s.steps()/6) {
		a := notable()[round%len(notable())]
		limits := notedLimits(a, fmt.Sprint("random", round),
			limiter.Rate{Count: 1 + r.Int64N(40), Window: time.Duration(1+r.IntN(20)) * time.Second},
			limiter.Rate{Count: 1 + r.Int64N(200), Window: time.Duration(21+r.IntN(60)) * time.Second})
		if !t.Run(fmt.Sprint(a), func(t *testing.T) { newPair(s, limits).run(t, r) }) {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

// A pair takes the same steps on two sets of keys.
type pair struct {
	*suite
	limits    []*limiter.Limit
	byNote    [3]limiter.Key // the keys whose permits are returned by subject
	byID      [3]limiter.Key
	subjects  [4]limiter.Key
	notedByID [4][]noted
}

// A noted is what one decision took.
type noted struct {
	claims []limiter.Claim
	permit limiter.Permit
}

func newPair(s *suite, limits []*limiter.Limit) *pair {
	p := &pair{suite: s, limits: limits}
	for i := range p.byNote {
		p.byNote[i], p.byID[i] = s.key(), s.key()
	}
	for i := range p.subjects {
		p.subjects[i] = s.key()
	}
	return p
}

func (p *pair) run(t *testing.T, r *rand.Rand) {
	for step := range min(60, 4*p.steps()) {
		p.Advance(time.Duration(r.IntN(4)*r.IntN(1500)) * time.Millisecond)
		subject := r.IntN(len(p.subjects))
		if noted := p.notedByID[subject]; r.IntN(8) == 0 || len(noted) == 30 {
			p.returnAll(t, subject)
		} else {
			p.takeBoth(t, r, subject)
		}
		for i := range p.byNote {
			got, want := p.peek(t, claimsOf(p.limits, p.byNote[i], limiter.Key{})), p.peek(t, claimsOf(p.limits, p.byID[i], limiter.Key{}))
			if fmt.Sprint(got.Outcomes) != fmt.Sprint(want.Outcomes) {
				t.Fatalf("step %d, key %d: %+v, want %+v", step, i, got.Outcomes, want.Outcomes)
			}
		}
	}
}

// takeBoth takes the same from a key of both sets. Now and then it is refunded by ID at once, as for a
// message that was not sent.
func (p *pair) takeBoth(t *testing.T, r *rand.Rand, subject int) {
	i, cost := r.IntN(len(p.byNote)), 1+r.Int64N(3)
	got, want := claimsOf(p.limits, p.byNote[i], p.subjects[subject]), claimsOf(p.limits, p.byID[i], limiter.Key{})
	for j := range got {
		got[j].Cost = min(cost, got[j].Limit.Capacity())
		want[j].Cost = got[j].Cost
	}
	d, e := p.take(t, got), p.take(t, want)
	if d.Allowed != e.Allowed {
		t.Fatalf("%+v, want %+v", d, e)
	}
	if !d.Allowed {
		return
	}
	p.notedByID[subject] = append(p.notedByID[subject], noted{want, e.Permit})
	if r.IntN(6) == 0 {
		p.refund(t, got, d.Permit)
		p.refund(t, want, e.Permit)
	}
}

// returnAll returns all permits of a subject, of one set by the note and of the other by ID.
func (p *pair) returnAll(t *testing.T, subject int) {
	if _, err := p.admin().Return(t.Context(), p.limits, p.subjects[subject]); err != nil {
		t.Fatal(err)
	}
	for _, n := range p.notedByID[subject] {
		p.refund(t, n.claims, n.permit)
	}
	p.notedByID[subject] = nil
}
