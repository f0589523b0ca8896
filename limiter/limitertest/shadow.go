package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A Beside is what a store has decided about a group of claims beside group 0.
type Beside struct {
	Allowed, Failed bool
	Outcomes        []limiter.Outcome
}

// TakeGroups takes own as group 0, which may be none, and others as the groups behind it. The outcomes of d are those of own.
func TakeGroups(ctx context.Context, s limiter.Store, own []limiter.Claim, others ...[]limiter.Claim) (d limiter.Decision, beside []Beside, err error) {
	all := slices.Clone(own)
	for i, group := range others {
		for _, c := range group {
			c.Group = uint8(i + 1)
			all = append(all, c)
		}
	}
	if err = s.Take(ctx, all, &d); err != nil || !d.Allowed {
		return d, nil, err
	}
	rest := d.Outcomes[len(own):]
	d.Outcomes = d.Outcomes[:len(own):len(own)]
	for _, group := range others {
		b := Beside{Allowed: true, Outcomes: rest[:len(group)]}
		rest = rest[len(group):]
		for _, o := range b.Outcomes {
			b.Allowed, b.Failed = b.Allowed && o.Allowed, b.Failed || o.IsFailed()
		}
		beside = append(beside, b)
	}
	return d, beside, nil
}

// shadows: what is decided beside a request refuses nothing, takes nothing if the request is
// refused, and can be refunded by itself.
func shadows(t *testing.T, s *suite) {
	k := s.key()
	claims, narrow, wide := oneClaim(limit("own", 3, 100*time.Second), k, 1), oneClaim(limit("narrow", 1, 50*time.Second), k, 1), oneClaim(limit("wide", 9, 50*time.Second), k, 1)
	invalid := oneClaim(limit("", 1, time.Second), k, 1)
	for round, want := range []bool{true, true, true, false} {
		d, beside, err := TakeGroups(s.t.Context(), s.Store, claims, narrow, invalid, wide)
		if err != nil {
			t.Fatal(err)
		}
		s.checkDecision(t, claims, d)
		if d.Allowed != want {
			t.Fatalf("round %d: %+v", round, d)
		}
		if !want {
			break
		}
		if !beside[1].Failed {
			t.Error("a shadow that is not valid is decided")
		}
		if got := beside[0]; got.Failed || got.Allowed != (round == 0) {
			t.Errorf("round %d: narrow %+v", round, got)
		}
		if got := beside[2]; got.Failed || !got.Allowed {
			t.Errorf("round %d: wide %+v", round, got)
		}
		if round == 1 {
			s.refund(t, wide, d.Permit)
			s.left(wide, 8)
			s.left(claims, 1)
		}
	}
	s.left(wide, 7)
	d, beside, err := TakeGroups(s.t.Context(), s.Store, nil, narrow, wide)
	if err != nil || !d.Allowed || beside[0].Allowed || !beside[1].Allowed {
		t.Errorf("beside no claims: %v, %+v", err, beside)
	}
	s.left(wide, 6)
	s.refund(t, wide, d.Permit)
	s.left(wide, 7)
}

// shadowsRandom: what is decided beside requests of any algorithms is what it is in calls of
// its own after those that are allowed.
func shadowsRandom(t *testing.T, s *suite) {
	r := rand.New(rand.NewPCG(11, 3))
	for range min(40, 1+s.steps()/4) {
		var limits []*limiter.Limit
		for i := range 4 {
			a := limiter.Algorithm(r.IntN(int(limiter.NumAlgorithms)))
			rate := limiter.Rate{Count: 1 + r.Int64N(4), Window: time.Duration(1+r.IntN(20)) * time.Second}
			limits = append(limits, LimitOf(a, fmt.Sprint("l", i), rate))
		}
		s.compareShadows(t, r, limits)
	}
}

// compareShadows takes from two keys in the same way: from one in single calls, from the other
// with shadows.
func (s *suite) compareShadows(t *testing.T, r *rand.Rand, limits []*limiter.Limit) {
	single, together := s.key(), s.key()
	for step := range 12 {
		s.Advance(time.Duration(r.IntN(6)*r.IntN(900)) * time.Millisecond)
		value := limiter.KeyOf(fmt.Sprint(r.IntN(4)))
		of := func(k limiter.Key, from, to int) (claims []limiter.Claim) {
			for _, l := range limits[from:to] {
				claims = append(claims, limiter.Claim{Limit: l, Key: k, Cost: 1, Value: value})
			}
			return claims
		}
		own := 1 + r.IntN(2)
		got, beside, err := TakeGroups(s.t.Context(), s.Store, of(together, 0, own), of(together, own, 3), of(together, 3, 4))
		if err != nil {
			t.Fatal(err)
		}
		want := s.take(t, of(single, 0, own))
		if fmt.Sprint(got.Allowed, got.Outcomes) != fmt.Sprint(want.Allowed, want.Outcomes) {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
		for i, from := range []int{own, 3} {
			if !want.Allowed {
				break
			}
			to := []int{3, 4}[i]
			want, got := s.take(t, of(single, from, to)), beside[i]
			if got.Failed || fmt.Sprint(got.Allowed, got.Outcomes) != fmt.Sprint(want.Allowed, want.Outcomes) {
				t.Fatalf("step %d, shadow %d: %+v, want %+v", step, i, got, want)
			}
		}
	}
}

// shadowsBound: a request and its shadows have at most MaxClaims claims. A shadow with which there would be more is not
// decided, and fails; nothing else does.
func shadowsBound(t *testing.T, s *suite) {
	for _, sizes := range [][]int{{100, 20, 20, 8}, {limiter.MaxClaims, 1}, {1, 127, 1}, {128, 128, 128, 128, 128}, {1, 128, 100, 128, 27}} {
		k, made := s.key(), 0
		claims := func(n int) (all []limiter.Claim) {
			for range n {
				made++
				all = append(all, oneClaim(limit(fmt.Sprint("bound", made, ":a"), 3, time.Minute), k, 1)...)
				all[len(all)-1].Limit.Algorithm = limiter.SlidingLog
			}
			return all
		}
		own, total := claims(sizes[0]), sizes[0]
		var others [][]limiter.Claim
		for _, n := range sizes[1:] {
			others = append(others, claims(n))
		}
		d, beside, err := TakeGroups(t.Context(), s.Store, own, others...)
		if err != nil || !d.Allowed {
			t.Fatalf("%v: %v, allowed %v", sizes, err, d.Allowed)
		}
		for i, b := range beside {
			left := int64(2)
			if total+sizes[1+i] > limiter.MaxClaims {
				left = 3
				if !b.Failed {
					t.Errorf("%v, shadow %d: %+v", sizes, i, b)
				}
			} else if total += sizes[1+i]; b.Failed || !b.Allowed {
				t.Errorf("%v, shadow %d: %+v", sizes, i, b)
			}
			s.left(others[i][:1], left)
		}
	}
}
