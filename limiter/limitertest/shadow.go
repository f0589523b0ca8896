package limitertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// shadows: what is decided beside a request refuses nothing, takes nothing if the request is
// refused, and can be refunded by itself.
func shadows(t *testing.T, s *suite) {
	k := s.key()
	claims, narrow, wide := oneClaim(limit("own", 3, 100*time.Second), k, 1), oneClaim(limit("narrow", 1, 50*time.Second), k, 1), oneClaim(limit("wide", 9, 50*time.Second), k, 1)
	invalid := oneClaim(limit("", 1, time.Second), k, 1)
	for round, want := range []bool{true, true, true, false} {
		var d limiter.Decision
		beside := []limiter.Shadow{{Claims: narrow}, {Claims: invalid}, {Claims: wide}}
		if err := limiter.TakeWithShadows(s.t.Context(), s.Store, claims, &d, beside); err != nil {
			t.Fatal(err)
		}
		s.checkDecision(t, claims, d)
		if d.Allowed != want {
			t.Fatalf("round %d: %+v", round, d)
		}
		if !want {
			break
		}
		if beside[1].Err == nil {
			t.Error("a shadow that is not valid is decided")
		}
		if got := beside[0]; got.Err != nil || got.Decision.Allowed != (round == 0) {
			t.Errorf("round %d: narrow %+v", round, got)
		}
		if got := beside[2]; got.Err != nil || !got.Decision.Allowed {
			t.Errorf("round %d: wide %+v", round, got)
		}
		if round == 1 {
			s.refund(t, wide, beside[2].Decision.Permit)
			s.left(wide, 8)
			s.left(claims, 1)
		}
	}
	s.left(wide, 7)
	var d limiter.Decision
	beside := []limiter.Shadow{{Claims: narrow}, {Claims: wide}}
	if err := limiter.TakeWithShadows(s.t.Context(), s.Store, nil, &d, beside); err != nil || !d.Allowed || beside[0].Decision.Allowed || !beside[1].Decision.Allowed {
		t.Errorf("beside no claims: %v, %+v", err, beside)
	}
	s.left(wide, 6)
}

// shadowsRandom: what is decided beside requests of any algorithms is what it is in calls of
// its own after those that are allowed.
func shadowsRandom(t *testing.T, s *suite) {
	r := rand.New(rand.NewPCG(11, 3))
	for range min(40, 1+s.steps()/4) {
		var limits []*limiter.Limit
		for i := range 4 {
			a := limiter.Algorithm(r.IntN(int(limiter.NumAlgorithms)))
			l := limit(fmt.Sprint("l", i), 1+r.Int64N(4), time.Duration(1+r.IntN(20))*time.Second)
			if l.Algorithm = a; a.HasSteps() {
				l.Rate.Count, l.Steps = 1, []time.Duration{l.Rate.Window / 8, l.Rate.Window / 2}
			} else if a.HasConversion() {
				l.Noted, l.Conversion = true, 50
			}
			limits = append(limits, l)
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
		beside := []limiter.Shadow{{Claims: of(together, own, 3)}, {Claims: of(together, 3, 4)}}
		var got limiter.Decision
		if err := limiter.TakeWithShadows(s.t.Context(), s.Store, of(together, 0, own), &got, beside); err != nil {
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
			want, got := s.take(t, of(single, from, to)), beside[i].Decision
			if beside[i].Err != nil || fmt.Sprint(got.Allowed, got.Outcomes) != fmt.Sprint(want.Allowed, want.Outcomes) {
				t.Fatalf("step %d, shadow %d: %v, %+v, want %+v", step, i, beside[i].Err, got, want)
			}
		}
	}
}

// shadowsBound: a request and its shadows have at most MaxClaims claims. A shadow with which there would be more is not
// decided, and says why; nothing else fails.
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
		var shadows []limiter.Shadow
		for _, n := range sizes[1:] {
			shadows = append(shadows, limiter.Shadow{Claims: claims(n)})
		}
		var d limiter.Decision
		if err := limiter.TakeWithShadows(t.Context(), s.Store, own, &d, shadows); err != nil || !d.Allowed {
			t.Fatalf("%v: %v, allowed %v", sizes, err, d.Allowed)
		}
		for i, h := range shadows {
			left := int64(2)
			if total+sizes[1+i] > limiter.MaxClaims {
				left = 3
				if !errors.Is(h.Err, limiter.ErrInvalidLimit) {
					t.Errorf("%v, shadow %d: %v", sizes, i, h.Err)
				}
			} else if total += sizes[1+i]; h.Err != nil || !h.Decision.Allowed {
				t.Errorf("%v, shadow %d: %v, allowed %v", sizes, i, h.Err, h.Decision.Allowed)
			}
			s.left(h.Claims[:1], left)
		}
	}
}
