package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// logged is a claim of a sliding log.
func logged(count int64, window time.Duration) []limiter.Claim {
	c := claim(count, window, 1)
	c[0].Limit.Algorithm = limiter.SlidingLog
	return c
}

// A sliding log is one key, which leaves by itself and is small at any rate.
func TestSlidingLog_IsOneSmallKey(t *testing.T) {
	t.Parallel()
	for _, count := range []int64{1, 10, 128, 1000, 100_000} {
		s := newClockedTestStore(t)
		c := logged(count, 100*time.Second)
		key := redisstore.BoxName(c[0])
		var bytes int64
		began := time.Now()
		for range 350 {
			s.take(c)
			s.advance(400 * time.Millisecond)
			bytes = max(bytes, s.do("memory", "usage", key, "samples", 0).(int64))
		}
		if keys := s.do("keys", "weir:*").([]any); fmt.Sprint(keys) != fmt.Sprint([]string{key}) {
			t.Errorf("keys %v, want %s", keys, key)
		}
		if ttl := s.do("pttl", key).(int64); ttl <= 90_000-time.Since(began).Milliseconds() || ttl > 101_000 { // Redis's own clock goes on
			t.Errorf("lives %d ms", ttl)
		}
		if bytes > 2048 {
			t.Errorf("rate %d: %d bytes", count, bytes)
		}
		t.Logf("rate %d: at most %d bytes", count, bytes)
	}
}

// Most keys have one permit: it takes little room, is the same permit when others come,
// and is given back by its id.
func TestSlidingLog_OnePermitIsSmaller(t *testing.T) {
	s := newClockedTestStore(t)
	c := logged(60, time.Hour)
	d := s.allowed(c, 1)
	if bytes := s.do("memory", "usage", redisstore.BoxName(c[0]), "samples", 0).(int64); bytes > 150 {
		t.Errorf("one permit takes %d bytes, want at most 150", bytes)
	}
	s.left(c, 59)
	s.advance(time.Minute)
	s.allowed(c, 1)
	s.left(c, 58)
	for range 2 {
		s.check(s.store.Refund(t.Context(), c, d.Permit))
		s.left(c, 59)
	}
	s.advance(2 * time.Hour)
	s.allowed(c, 1)
	c[0].Cost = 60
	s.denied(c, time.Hour)
}

// Times and counts of any size are kept as they are.
func TestSlidingLog_KeepsAnySize(t *testing.T) {
	s := newClockedTestStore(t)
	c := logged(limiter.MaxCount, limiter.MaxWindow)
	var out int64
	for i, pause := range []time.Duration{0, time.Millisecond, 70 * time.Second, 5 * time.Hour, 60 * 24 * time.Hour} {
		s.advance(pause)
		for _, cost := range []int64{1, 255, 256, 100_000_000} {
			c[0].Cost = cost
			s.allowed(c, 1)
			out += cost
			s.left(c, limiter.MaxCount-out)
		}
		c[0].Cost = limiter.MaxCount
		if d := s.take(c); d.Allowed {
			t.Fatalf("step %d: %+v", i, d)
		}
	}
	gone := 60*24*time.Hour + 5*time.Hour + 70*time.Second + time.Millisecond
	c[0].Cost = limiter.MaxCount - out + 1
	s.denied(c, limiter.MaxWindow-gone)
	s.advance(limiter.MaxWindow - time.Millisecond)
	s.left(c, limiter.MaxCount-100_000_000-256-255-1)
	s.advance(time.Millisecond)
	s.left(c, limiter.MaxCount)
}

// Another algorithm of the same limit starts anew, and none writes what another reads.
func TestSlidingLog_StartsAnew(t *testing.T) {
	s := newClockedTestStore(t)
	bucket, log := claim(2, time.Minute, 1), logged(2, time.Minute)
	s.allowed(bucket, 2)
	s.allowed(log, 2)
	s.denied(bucket, time.Minute)
	s.denied(log, time.Minute)
}
