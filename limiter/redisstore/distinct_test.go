package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// spread is one claim of 3 values an hour, under key, with a value.
func spread(key, value string) []limiter.Claim {
	l := &limiter.Limit{Name: "fan:1h", Rate: limiter.Rate{Count: 3, Window: time.Hour}, Algorithm: limiter.Distinct}
	return []limiter.Claim{{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(value)}}
}

// Of many values at once as many pass as may, and those pass again and again,
// while the others are refused, also by a store that remembers refusals.
func TestDistinct_ACrowdOfValues(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	var passed sync.Map
	var n atomic.Int64
	for range 2 {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				var d limiter.Decision
				if err := store.Take(t.Context(), spread("ip", fmt.Sprint(i)), &d); err != nil {
					t.Error(err)
				}
				if _, known := passed.Load(i); d.Allowed && !known {
					n.Add(1)
					passed.Store(i, true)
				} else if known && !d.Allowed {
					t.Errorf("value %d passed before, and is refused now: %+v", i, d)
				}
			})
		}
		all.Wait()
		if n.Load() != 3 {
			t.Fatalf("%d of 60 values passed, want 3", n.Load())
		}
	}
}

// However often a value is used, its window has few entries, and leaves by itself.
func TestDistinct_KeysStaySmall(t *testing.T) {
	s := newClockedTestStore(t)
	c := spread("ip", "1")
	log, uses := name(c)+":{distinct}:permits", name(c)+":{distinct}:value"
	for i := range 300 {
		s.allowed(spread("ip", fmt.Sprint(i%3)), 1)
		s.advance(time.Second)
		if n, m := s.do("zcard", log).(int64), s.do("hlen", uses).(int64); n > 3 || m != n {
			t.Fatalf("%d values and uses of %d after %d uses of 3 values", n, m, i+1)
		}
		if n := s.do("hstrlen", uses, string(c[0].Value[:8])).(int64); n > 3*14 {
			t.Fatalf("%d bytes of uses of one value", n)
		}
	}
	if ttl := s.do("pttl", log).(int64); ttl <= 0 || ttl > (time.Hour+time.Second).Milliseconds() {
		t.Errorf("it lives for %d ms", ttl)
	}
	if n := s.do("dbsize").(int64); n != 3 { // the clock is one
		t.Errorf("%d keys, want the values and their uses", n-1)
	}
}

// The uses that an earlier version has written count, before those of this one and beside them, and can be refunded.
func TestDistinct_UsesOfEarlierVersions(t *testing.T) {
	s := newClockedTestStore(t)
	now := int64(1_800_000_000_000)
	log := name(spread("ip", "")) + ":{distinct}:permits"
	use := func(value string, id byte, age time.Duration) limiter.Permit {
		t.Helper()
		c, p := spread("ip", value)[0], limiter.Permit{ID: [16]byte{id, 1}, At: time.UnixMilli(now).Add(-age)}
		s.do("zadd", log, now-age.Milliseconds(), string(c.Value[:8])+string(p.ID[:8]))
		return p
	}
	s.do("zadd", log, now, "\x05floor\x00\x00\x00\x00") // of a reset
	use("gone", 1, time.Hour)
	use("a", 2, 50*time.Minute)
	first := use("b", 3, 40*time.Minute)
	s.left(spread("ip", "x"), 1)
	s.allowed(spread("ip", "a"), 1)
	s.left(spread("ip", "x"), 1)
	again := use("b", 4, 30*time.Minute) // an older process goes on
	use("c", 5, 20*time.Minute)
	s.denied(spread("ip", "x"), 30*time.Minute) // until b has gone
	for _, p := range []limiter.Permit{again, again, first} {
		s.check(s.store.Refund(t.Context(), spread("ip", "b"), p))
	}
	s.left(spread("ip", "x"), 1)
	s.allowed(spread("ip", "c"), 1)
	s.allowed(spread("ip", "x"), 1)
	s.denied(spread("ip", "y"), time.Hour)
}

// A cooldown has few entries however many permits it has granted.
func TestCooldown_KeysStaySmall(t *testing.T) {
	s := newClockedTestStore(t)
	l := &limiter.Limit{Name: "pause", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown, Steps: []time.Duration{time.Second, 2 * time.Second}}
	c := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("phone"), Cost: 1}}
	for range 100 {
		s.allowed(c, 1)
		s.advance(2 * time.Second)
	}
	s.allowed(c, 1)
	s.denied(c, 2*time.Second)
	key := redisstore.BoxName(c[0])
	if n, ttl := s.do("strlen", key).(int64), s.do("pttl", key).(int64); n < 20 || n > 33*14 || ttl <= 0 {
		t.Errorf("%d bytes, which live for %d ms", n, ttl)
	}
}

// What was granted in place of Redis counts there: values stand, pauses go on.
func TestReport_ValuesAndPauses(t *testing.T) {
	s := newClockedTestStore(t)
	s.allowed(spread("ip", "a"), 1)
	for _, value := range []string{"b", "b", "c"} {
		s.tellAged(spread("ip", value), 1, time.Minute)
	}
	s.left(spread("ip", ""), 0)
	s.allowed(spread("ip", "c"), 1)
	s.allowed(spread("ip", "b"), 1)
	s.denied(spread("ip", "d"), time.Hour)
	l := &limiter.Limit{Name: "pause", Rate: limiter.Rate{Count: 1, Window: time.Hour}, Algorithm: limiter.Cooldown, Steps: []time.Duration{time.Minute, 5 * time.Minute}}
	c := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("phone"), Cost: 1}}
	s.tellAged(c, 2, 2*time.Minute)
	s.deniedByReports(c, 3*time.Minute)
}
