package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

func (s *testStore) handle(name string) *redisstore.RateLimiter {
	s.t.Helper()
	r, err := s.store.RateLimiter(name, "d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11")
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func config(count int64, window, alive time.Duration) redisstore.RateConfig {
	return redisstore.RateConfig{Rate: limiter.Rate{Count: count, Window: window}, KeepAlive: alive}
}

func (s *testStore) setRate(r *redisstore.RateLimiter, c redisstore.RateConfig) {
	s.t.Helper()
	s.check(r.SetRate(s.t.Context(), c))
}

func (s *testStore) allow(r *redisstore.RateLimiter, n int64) limiter.Outcome {
	s.t.Helper()
	o, err := r.Allow(s.t.Context(), n)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *testStore) available(r *redisstore.RateLimiter, want int64) {
	s.t.Helper()
	if got, err := r.Available(s.t.Context()); err != nil || got != want {
		s.t.Fatalf("%d available (%v), want %d", got, err, want)
	}
}

// Keys, fields and members are those of Redisson, byte for byte.
func TestRateLimiter_IsRedissons(t *testing.T) {
	for name, keys := range map[string][]string{
		"redisson:demo": {"redisson:demo", "{redisson:demo}:permits", "{redisson:demo}:value"},
		"a{b}c":         {"a{b}c", "a{b}c:permits", "a{b}c:value"},
	} {
		s := newClockedTestStore(t)
		r := s.handle(name)
		if set, err := r.TrySetRate(t.Context(), config(10, 2*time.Second, 0)); !set || err != nil {
			t.Fatal(set, err)
		}
		s.allow(r, 3)
		got, err := s.client.Keys(t.Context(), "*[bd]*").Result()
		got = slices.DeleteFunc(got, func(k string) bool { return k == redisstore.TestClock })
		slices.Sort(got)
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("keys %q, want %q", got, keys)
		}
		fields, err := s.client.HGetAll(t.Context(), name).Result()
		if err != nil || fmt.Sprint(fields) != "map[interval:2000 keepAliveTime:0 rate:10 type:0]" {
			t.Errorf("fields %v %v", fields, err)
		}
		if v := s.do("get", keys[2]); v != "7" {
			t.Errorf("value %v", v)
		}
		zs, err := s.client.ZRangeWithScores(t.Context(), keys[1], 0, -1).Result()
		if err != nil || len(zs) != 1 || zs[0].Score != 1_800_000_000_000 {
			t.Fatalf("%v %v", zs, err)
		}
		member := zs[0].Member.(string)
		if int(member[0]) != len(member)-5 || member[len(member)-4:] != "\x03\x00\x00\x00" {
			t.Errorf("member %x", member)
		}
		for _, key := range keys {
			if ttl := s.do("pttl", key); ttl != int64(-1) {
				t.Errorf("%s lives for %v, want for ever as the config says", key, ttl)
			}
		}
	}
	s := newClockedTestStore(t)
	r := s.handle("own")
	c := config(10, time.Second, 0)
	c.PerClient = true
	s.setRate(r, c)
	s.allow(r, 1)
	const client = "d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11"
	if n := s.do("exists", "{own}:value:"+client, "{own}:permits:"+client); n != int64(2) {
		t.Errorf("%v keys of a client by itself", n)
	}
	if typ := s.do("hget", "own", "type"); typ != "1" {
		t.Errorf("type %v", typ)
	}
}

// All keys live as long as the config, or the hash, says; one without a config is
// an error that a new config ends.
func TestRateLimiter_LivesAndDies(t *testing.T) {
	s := newClockedTestStore(t)
	r := s.handle("rl")
	if _, err := r.Allow(t.Context(), 1); !errors.Is(err, redisstore.ErrNoRate) {
		t.Errorf("allow: %v", err)
	}
	if _, err := r.Available(t.Context()); !errors.Is(err, redisstore.ErrNoRate) {
		t.Errorf("available: %v", err)
	}
	if _, err := r.Config(t.Context()); !errors.Is(err, redisstore.ErrNoRate) {
		t.Errorf("config: %v", err)
	}
	if ok, err := r.UpdateRate(t.Context(), config(5, time.Second, 0)); ok || err != nil {
		t.Errorf("update of nothing: %v %v", ok, err)
	}
	want := config(5, time.Minute, time.Hour)
	if set, err := r.TrySetRate(t.Context(), want); !set || err != nil {
		t.Errorf("try: %v %v", set, err)
	}
	if set, err := r.TrySetRate(t.Context(), config(9, time.Second, 0)); set || err != nil {
		t.Errorf("try again: %v %v", set, err)
	}
	if got, err := r.Config(t.Context()); got != want || err != nil {
		t.Errorf("config %+v %v, want %+v", got, err, want)
	}
	lives := func(least, most time.Duration) {
		t.Helper()
		for _, key := range []string{"rl", "{rl}:value", "{rl}:permits"} {
			ttl := time.Duration(s.do("pttl", key).(int64)) * time.Millisecond
			if ttl <= least || ttl > most {
				t.Errorf("%s lives for %v, want %v to %v", key, ttl, least, most)
			}
		}
	}
	s.allow(r, 1)
	lives(59*time.Minute, time.Hour)
	s.available(r, 4) // looking does not change that
	lives(59*time.Minute, time.Hour)
	s.setRate(r, config(5, time.Minute, 0))
	s.allow(r, 1)
	if ok, err := r.Expire(t.Context(), 10*time.Minute); !ok || err != nil {
		t.Error(ok, err)
	}
	lives(9*time.Minute, 10*time.Minute)
	s.do("persist", "{rl}:permits")
	s.allow(r, 1) // the hash has a time to live: all get it
	lives(9*time.Minute, 10*time.Minute)
	if ok, err := r.Delete(t.Context()); !ok || err != nil {
		t.Error(ok, err)
	}
	if n := s.do("dbsize"); n != int64(1) {
		t.Errorf("%v keys after delete", n)
	}
	if ok, _ := r.Delete(t.Context()); ok {
		t.Error("deleted twice")
	}
}

// A new rate by SetRate forgets, by UpdateRate keeps what was taken.
func TestRateLimiter_ChangesItsRate(t *testing.T) {
	s := newClockedTestStore(t)
	r := s.handle("rl")
	s.setRate(r, config(10, 10*time.Second, 0))
	s.allow(r, 6)
	for _, step := range []struct{ count, left int64 }{{20, 14}, {8, 2}, {3, 0}, {7, 1}} {
		if ok, err := r.UpdateRate(t.Context(), config(step.count, 10*time.Second, 0)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		s.available(r, step.left)
	}
	s.allow(r, 1)
	if s.allow(r, 1).Allowed {
		t.Error("8 of 7")
	}
	s.setRate(r, config(7, 10*time.Second, 0))
	s.available(r, 7)
	for _, bad := range []redisstore.RateConfig{{}, config(0, time.Second, 0), config(1, time.Second, time.Millisecond)} {
		if err := r.SetRate(t.Context(), bad); !errors.Is(err, redisstore.ErrRateConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Release gives back at most what is out, and never makes more than the rate.
func TestRateLimiter_Releases(t *testing.T) {
	s := newClockedTestStore(t)
	r := s.handle("rl")
	s.setRate(r, config(10, 10*time.Second, 0))
	for range 4 {
		s.allow(r, 2)
		s.advance(time.Second)
	}
	s.check(r.Release(t.Context(), 3))
	s.available(r, 5)
	if o := s.allow(r, 10); o.Allowed || o.Wait != 8*time.Second {
		t.Errorf("%+v, want the third to come back last, in 8s", o)
	}
	s.check(r.Release(t.Context(), 100))
	s.available(r, 10)
	s.allow(r, 10)
	if s.allow(r, 1).Allowed {
		t.Error("more than the rate")
	}
	s.advance(10 * time.Second)
	s.available(r, 10)
	if err := r.Release(t.Context(), -1); !errors.Is(err, limiter.ErrInvalidCost) {
		t.Errorf("release of -1: %v", err)
	}
	for _, n := range []int64{0, -3, 11, 1 << 40} {
		if _, err := r.Allow(t.Context(), n); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Errorf("allow of %d: %v", n, err)
		}
	}
	if _, err := s.store.RateLimiter("a{b", ""); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("odd braces: %v", err)
	}
}

// Waiting ends with the permits, at once when they come too late, or with ctx.
func TestRateLimiter_Waits(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	r := s.handle("rl")
	s.setRate(r, config(1, 100*time.Millisecond, 0))
	start := time.Now()
	for range 3 {
		s.check(r.Wait(t.Context(), 1))
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("3 permits within %v", took)
	}
	s.setRate(r, config(1, time.Hour, 0))
	s.allow(r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	start = time.Now()
	if err := r.Wait(ctx, 1); !errors.Is(err, redisstore.ErrWaitTooLong) || time.Since(start) > patient/2 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	gone, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if err := r.Wait(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The older form is a counter that lives for one interval.
func TestRateLimiter_OlderForm(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	r := s.handle("rl").Fixed()
	s.setRate(r, config(3, 2*time.Second, 0))
	for i := range 3 {
		if o := s.allow(r, 1); !o.Allowed || o.Remaining != int64(2-i) {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	o := s.allow(r, 1)
	if o.Allowed || o.Wait <= 0 || o.Wait > 2*time.Second {
		t.Fatalf("%+v", o)
	}
	if n := s.do("exists", "{rl}:permits"); n != int64(0) {
		t.Error("the older form has no permits")
	}
	s.check(r.Wait(t.Context(), 3))
}

// Neither a new rate nor an end of the config makes its window longer: what was taken comes back when it would have, or
// within the new window.
func TestRateLimiter_OlderFormWithAnotherConfig(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for name, c := range map[string]struct{ before, after redisstore.RateConfig }{
		"same":          {config(3, 300*time.Millisecond, 0), config(3, 300*time.Millisecond, 0)},
		"lower":         {config(3, 300*time.Millisecond, 0), config(1, 300*time.Millisecond, 0)},
		"kept alive":    {config(3, 300*time.Millisecond, time.Hour), config(3, 300*time.Millisecond, time.Hour)},
		"shorter":       {config(3, time.Hour, 0), config(3, 300*time.Millisecond, 0)},
		"after its end": {config(3, time.Millisecond, 0), config(3, 300*time.Millisecond, 0)},
	} {
		r := s.handle(name).Fixed()
		s.setRate(r, c.before)
		s.allow(r, 3)
		if ok, err := r.UpdateRate(t.Context(), c.after); !ok || err != nil {
			t.Fatal(name, ok, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		for range 2 {
			if err := r.Wait(ctx, c.after.Rate.Count); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		cancel()
		alive := s.do("pttl", name).(int64)
		if c.after.KeepAlive == 0 && alive != -1 || c.after.KeepAlive > 0 && alive < 3_000_000 {
			t.Errorf("%s: the config lives for %d ms", name, alive)
		}
	}
	r := s.handle("rl").Fixed()
	s.setRate(r, config(3, 300*time.Millisecond, 0))
	s.allow(r, 3)
	if ok, err := r.Expire(t.Context(), time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	if err := r.Wait(ctx, 3); err != nil {
		t.Errorf("with an end of the config: %v", err)
	}
}

// What the newer forms have left under the same name is no window, which has an end: it refuses nobody for ever.
func TestRateLimiter_OlderFormBesideANewerOne(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	r := s.handle("rl")
	s.setRate(r, config(3, 300*time.Millisecond, 0))
	s.allow(r, 3)
	fixed := r.Fixed()
	for i := range 3 {
		if o := s.allow(fixed, 1); !o.Allowed || o.Remaining != int64(2-i) {
			t.Errorf("%d: %+v", i, o)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	s.check(errors.Join(fixed.Wait(ctx, 3), fixed.Wait(ctx, 3)))
}

// Whatever is lost of a limiter, the next call is no error, and heals it.
func TestRateLimiter_Heals(t *testing.T) {
	s := newClockedTestStore(t)
	for _, lost := range []string{"{rl}:value", "{rl}:permits"} {
		r := s.handle("rl")
		s.setRate(r, config(10, 10*time.Second, 0))
		s.allow(r, 10)
		s.do("del", lost)
		s.allow(r, 1)
		s.advance(10 * time.Second)
		s.available(r, 10)
		if !s.allow(r, 10).Allowed {
			t.Errorf("without %s: refused", lost)
		}
	}
	r := s.handle("rl") // spent by a rate that was raised behind our back
	s.setRate(r, config(1, 10*time.Second, 0))
	s.allow(r, 1)
	s.do("hset", "rl", "rate", 5)
	s.available(r, 4)
	if !s.allow(r, 4).Allowed {
		t.Error("a raised rate is not seen")
	}
}
