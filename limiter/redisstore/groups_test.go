package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
)

// A request and its shadows are one script call, among requests without any.
func TestGroups_IsOneCall(t *testing.T) {
	s := newClockedTestStore(t)
	own, other := claim(2, time.Hour, 1), claim(9, time.Hour, 1)
	other[0].Key = limiter.KeyOf("other")
	shadow := func(name string, a limiter.Algorithm, key string) []limiter.Claim {
		c := claim(1, time.Hour, 1)
		c[0].Limit.Name, c[0].Limit.Algorithm, c[0].Key = name, a, limiter.KeyOf(key)
		return c
	}
	if _, _, err := limitertest.TakeGroups(t.Context(), s.store, other, shadow("a", limiter.GCRA, "other")); err != nil { // Redis does not know the script yet
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		s.do("config", "resetstat")
		d, beside, err := limitertest.TakeGroups(t.Context(), s.store, own, shadow("a", limiter.GCRA, "x"), shadow("b", limiter.TokenBucket, "y"), shadow("c", limiter.SlidingLog, "x"))
		if err != nil || d.Allowed != want || want && len(beside) != 3 {
			t.Fatalf("%d: %v, allowed %v", i, err, d.Allowed)
		}
		for j, b := range beside {
			if b.Failed || b.Allowed != (i == 0) {
				t.Errorf("%d, group %d: %+v", i, j, b)
			}
		}
		if got := s.commands(); got["evalsha"]+got["eval"] != 1 {
			t.Errorf("%d: runs %v, want one script", i, got)
		}
	}
}

// A shadow of a refused request takes nothing, and so nothing of it is noted: its subject returns what it has taken alone.
func TestGroups_NothingIsNotedOfARefusedRequest(t *testing.T) {
	s := newTestStore(t)
	for a := range limiter.NumAlgorithms {
		if a.HasLeases() || a.HasValues() || a.HasSteps() {
			continue // which have no notes
		}
		own, shadow := claim(1, time.Hour, 1), claim(5, time.Hour, 1)
		own[0].Key = limiter.KeyOf(a.String())
		l := limitertest.LimitOf(a, "unused"+a.String(), shadow[0].Limit.Rate)
		l.Noted, shadow[0].Limit = true, l
		shadow[0].Value = limiter.KeyOf("ann")
		if _, _, err := limitertest.TakeGroups(t.Context(), s.store, []limiter.Claim{claim(5, time.Hour, 1)[0]}, []limiter.Claim{bobs(shadow[0])}); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			if d, _, err := limitertest.TakeGroups(t.Context(), s.store, own, shadow); err != nil || d.Allowed != (i == 0) {
				t.Fatalf("%s, %d: %v, allowed %v", a, i, err, d.Allowed)
			}
		}
		n, err := s.store.Return(t.Context(), []*limiter.Limit{l}, limiter.KeyOf("ann"))
		if n != 1 || err != nil {
			t.Errorf("%s: %d decisions are returned, %v; want the one that was allowed", a, n, err)
		}
		if !a.HasConversion() { // where a subject that is confirmed adds to the rate
			s.left(shadow, 4) // that of bob is taken
		}
	}
}

// bobs is the same claim for another subject.
func bobs(c limiter.Claim) limiter.Claim {
	c.Value = limiter.KeyOf("bob")
	return c
}

// Of many requests at a time, with shadows and without, each limit grants what it has.
func TestGroups_ManyAtATime(t *testing.T) {
	s := newTestStore(t)
	named := func(name string, count int64) []limiter.Claim {
		c := claim(count, time.Hour, 1)
		c[0].Limit.Name = name
		return c
	}
	own, narrow, plain := named("own", 100), named("narrow", 30), named("plain", 40)
	var allowed, beside, without atomic.Int64
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			var d limiter.Decision
			if i%3 == 0 {
				if err := s.store.Take(t.Context(), plain, &d); err != nil {
					t.Error(err)
				} else if d.Allowed {
					without.Add(1)
				}
				return
			}
			d, others, err := limitertest.TakeGroups(t.Context(), s.store, own, narrow)
			switch {
			case err != nil || d.Allowed && others[0].Failed:
				t.Error(err, others)
			case d.Allowed:
				allowed.Add(1)
				if others[0].Allowed {
					beside.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got := fmt.Sprint(allowed.Load(), beside.Load(), without.Load()); got != "100 30 40" {
		t.Errorf("granted %s, want 100 30 40", got)
	}
}

// A shadow whose key is of another type fails alone; a request whose own key is takes nothing
// from its shadows.
func TestGroups_BadKey(t *testing.T) {
	s := newClockedTestStore(t)
	own, bad, good := claim(2, time.Hour, 1), claim(1, time.Hour, 1), claim(5, time.Hour, 1)
	bad[0].Limit.Name, good[0].Limit.Name = "bad", "good"
	s.do("sadd", name(bad)+":value", "x")
	d, beside, err := limitertest.TakeGroups(t.Context(), s.store, own, bad, good)
	if err != nil || !d.Allowed {
		t.Fatalf("%v, allowed %v", err, d.Allowed)
	}
	if !beside[0].Failed {
		t.Errorf("the bad group: %+v", beside[0])
	}
	if beside[1].Failed || !beside[1].Allowed {
		t.Errorf("the good group: %+v", beside[1])
	}
	if _, _, err := limitertest.TakeGroups(t.Context(), s.store, bad, good, own); err == nil || !strings.Contains(err.Error(), "of another type than its limit keeps there; reset it: bad") {
		t.Errorf("the bad request: %v", err)
	}
	s.left(good, 4)
	s.left(own, 1)
}

// A shadow that is known to be refused is not asked for.
func TestGroups_KnownRefusal(t *testing.T) {
	s := newTestStore(t)
	own, known := claim(9, time.Hour, 1), claim(1, time.Hour, 1)
	known[0].Limit.Name = "known"
	store := s.hearing()
	store.Deny(known[0], time.Hour)
	asked := claim(9, time.Hour, 1)
	asked[0].Limit.Name = "asked"
	d, beside, err := limitertest.TakeGroups(t.Context(), store, own, known, asked)
	if err != nil || !d.Allowed || beside[0].Failed || beside[0].Allowed || !beside[1].Allowed || beside[1].Outcomes[0].Remaining != 8 {
		t.Errorf("%v, %+v, %+v", err, d, beside)
	}
	if got := s.do("exists", name(known)+":value"); got != int64(0) {
		t.Error("the shadow is asked for")
	}
}

// A decision about nothing but groups beside is made at the time of Redis, too, as the log and the handles of outcomes say.
func TestGroups_AloneAreDecidedAtTheTimeOfRedis(t *testing.T) {
	s := newClockedTestStore(t)
	d, beside, err := limitertest.TakeGroups(t.Context(), s.store, nil, claim(9, time.Hour, 1))
	if err != nil || !d.Allowed || !beside[0].Allowed || !d.At.Equal(d.Permit.At) || time.Since(d.At).Abs() < 24*time.Hour {
		t.Errorf("%v, %+v, %+v; want the clock of the test", err, d, beside)
	}
}
