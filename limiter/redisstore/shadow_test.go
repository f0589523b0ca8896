package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A request and its shadows are one script call, among requests without any.
func TestTakeWithShadows_IsOneCall(t *testing.T) {
	s := newClockedTestStore(t)
	own, other := claim(2, time.Hour, 1), claim(9, time.Hour, 1)
	other[0].Key = limiter.KeyOf("other")
	shadow := func(name string, a limiter.Algorithm, key string) []limiter.Claim {
		c := claim(1, time.Hour, 1)
		c[0].Limit.Name, c[0].Limit.Algorithm, c[0].Key = name, a, limiter.KeyOf(key)
		return c
	}
	var first limiter.Decision // Redis does not know the script yet
	if err := s.store.TakeWithShadows(t.Context(), other, &first, []limiter.Shadow{{Claims: shadow("a", limiter.GCRA, "other")}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		s.do("config", "resetstat")
		var d limiter.Decision
		shadows := []limiter.Shadow{{Claims: shadow("a", limiter.GCRA, "x")}, {Claims: shadow("b", limiter.TokenBucket, "y")}, {Claims: shadow("c", limiter.SlidingLog, "x")}}
		if err := s.store.TakeWithShadows(t.Context(), own, &d, shadows); err != nil || d.Allowed != want {
			t.Fatalf("%d: %v, allowed %v", i, err, d.Allowed)
		}
		for j := range shadows {
			if h := &shadows[j]; want && (h.Err != nil || h.Decision.Allowed != (i == 0)) {
				t.Errorf("%d, shadow %d: %v, allowed %v", i, j, h.Err, h.Decision.Allowed)
			}
		}
		if got := s.commands(); got["evalsha"]+got["eval"] != 1 {
			t.Errorf("%d: runs %v, want one script", i, got)
		}
	}
}

// Of many requests at a time, with shadows and without, each limit grants what it has.
func TestTakeWithShadows_ManyAtATime(t *testing.T) {
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
			shadows := []limiter.Shadow{{Claims: narrow}}
			var err error
			if i%3 == 0 {
				err = s.store.Take(t.Context(), plain, &d)
			} else {
				err = s.store.TakeWithShadows(t.Context(), own, &d, shadows)
			}
			switch {
			case err != nil || shadows[0].Err != nil:
				t.Error(err, shadows[0].Err)
			case !d.Allowed:
			case i%3 == 0:
				without.Add(1)
			default:
				allowed.Add(1)
				if shadows[0].Decision.Allowed {
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
func TestTakeWithShadows_BadKey(t *testing.T) {
	s := newClockedTestStore(t)
	own, bad, good := claim(2, time.Hour, 1), claim(1, time.Hour, 1), claim(5, time.Hour, 1)
	bad[0].Limit.Name, good[0].Limit.Name = "bad", "good"
	s.do("sadd", name(bad)+":value", "x")
	var d limiter.Decision
	shadows := []limiter.Shadow{{Claims: bad}, {Claims: good}}
	if err := s.store.TakeWithShadows(t.Context(), own, &d, shadows); err != nil || !d.Allowed {
		t.Fatalf("%v, allowed %v", err, d.Allowed)
	}
	if err := shadows[0].Err; err == nil || !strings.Contains(err.Error(), "of another type than its limit keeps there; reset it: bad") {
		t.Errorf("the bad shadow: %v", err)
	}
	if shadows[1].Err != nil || !shadows[1].Decision.Allowed {
		t.Errorf("the good shadow: %+v", shadows[1])
	}
	shadows = []limiter.Shadow{{Claims: good}, {Claims: own}}
	if err := s.store.TakeWithShadows(t.Context(), bad, &d, shadows); err == nil || !strings.Contains(err.Error(), "reset it: bad") {
		t.Errorf("the bad request: %v", err)
	}
	s.left(good, 4)
	s.left(own, 1)
}

// A shadow that is known to be refused is not asked for.
func TestTakeWithShadows_KnownRefusal(t *testing.T) {
	s := newTestStore(t)
	own, known := claim(9, time.Hour, 1), claim(1, time.Hour, 1)
	known[0].Limit.Name = "known"
	store := s.hearing()
	store.Deny(known[0], time.Hour)
	var d limiter.Decision
	shadows := []limiter.Shadow{{Claims: known}}
	if err := store.TakeWithShadows(t.Context(), own, &d, shadows); err != nil || !d.Allowed || shadows[0].Err != nil || shadows[0].Decision.Allowed {
		t.Errorf("%v, %+v, %+v", err, d, shadows)
	}
	if got := s.do("exists", name(known)+":value"); got != int64(0) {
		t.Error("the shadow is asked for")
	}
}
