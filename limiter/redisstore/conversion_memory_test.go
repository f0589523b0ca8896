package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

const day = 24 * time.Hour

// remembering are the windows of a limit with a conversion of 50 % and 14 days of memory.
func remembering(counts map[time.Duration]int64) (limits []*limiter.Limit) {
	for _, window := range []time.Duration{time.Hour, day} {
		if n := counts[window]; n > 0 {
			limits = append(limits, &limiter.Limit{
				Name: "sms.unused:" + window.String(), Rate: limiter.Rate{Count: n, Window: window},
				Algorithm: limiter.Conversion, Noted: true, Conversion: 50, Memory: 14 * day,
			})
		}
	}
	return limits
}

// claimsUnder are claims on limits for a key and a subject.
func claimsUnder(limits []*limiter.Limit, key, subject string) (claims []limiter.Claim) {
	for _, l := range limits {
		claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(subject)})
	}
	return claims
}

// confirm takes for a subject and returns it.
func (s *testStore) confirm(limits []*limiter.Limit, key, subject string) {
	s.t.Helper()
	s.allowed(claimsUnder(limits, key, subject), 1)
	if n, err := s.store.Return(s.t.Context(), limits, limiter.KeyOf(subject)); n != 1 || err != nil {
		s.t.Fatal(n, err)
	}
}

// A key lives as long as a day counts, whoever writes it and whatever is beside it in the string; one of which
// nothing was confirmed lives as long as its permits.
func TestConversion_MemoryOutlivesTheWindow(t *testing.T) {
	for name, counts := range map[string]map[time.Duration]int64{
		"one window": {day: 3}, "two windows": {time.Hour: 3, day: 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClockedTestStore(t)
			limits := remembering(counts)
			key := redisstore.BoxName(claimsUnder(limits, "CN", "")[0])
			lives := func(least, most time.Duration) {
				t.Helper()
				if ttl := time.Duration(s.do("pttl", key).(int64)) * time.Millisecond; ttl < least || ttl > most {
					t.Errorf("the key lives for %v; want %v to %v", ttl, least, most)
				}
			}
			s.allowed(claimsUnder(limits, "CN", "eve"), 1)
			lives(day-time.Minute, day+time.Hour)
			if n, err := s.store.Return(t.Context(), limits, limiter.KeyOf("eve")); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			lives(13*day, 14*day)
			s.confirm(limits, "CN", "ann")
			s.allowed(claimsUnder(limits, "CN", "bob"), 2)
			lives(13*day, 14*day)
			for range 3 { // several requests in one call
				s.takesTogether(limits, "CN")
			}
			lives(13*day, 14*day)
			s.advance(9 * day)
			s.allowed(claimsUnder(limits, "CN", "bob"), 1)
			lives(4*day, 5*day)
			if err := s.store.Ban(t.Context(), claimsUnder(limits, "CN", "bob"), time.Minute); err != nil {
				t.Fatal(err)
			}
			lives(4*day, 5*day)
			s.advance(time.Hour)
			s.left(claimsUnder(limits[len(limits)-1:], "CN", "bob"), limits[len(limits)-1].Rate.Count) // 1 of n + 1
			s.advance(5 * day)
			s.allowed(claimsUnder(limits, "CN", "bob"), 1)
			lives(day-time.Minute, day+time.Hour)
		})
	}
}

// takesTogether takes of several keys, of which one exists, in one script call.
func (s *testStore) takesTogether(limits []*limiter.Limit, key string) {
	s.t.Helper()
	errs, ds := s.store.TakeInOneCall(s.t.Context(), [][]limiter.Claim{claimsUnder(limits, key, ""), claimsUnder(limits, "other", ""), claimsUnder(limits, "third", "")})
	for i := range errs {
		if errs[i] != nil {
			s.t.Fatal(errs[i], ds[i])
		}
	}
}

// However much is counted, a window of a key takes at most 0.9 kB, 0.6 without a memory.
func TestConversion_MemoryIsSmall(t *testing.T) {
	for memory, most := range map[time.Duration]int64{0: 600, 31 * day: 880} {
		s := newClockedTestStore(t)
		l := &limiter.Limit{
			Name: "sms.unused:1d", Rate: limiter.Rate{Count: 1000, Window: day},
			Algorithm: limiter.Conversion, Noted: true, Conversion: 50, Memory: memory,
		}
		limits := []*limiter.Limit{l}
		for number := range 32 { // each day has fewer confirmations than the one before: all are kept
			for i := range 33 - number {
				s.confirm(limits, "CN", strconv.Itoa(100*number+i))
			}
			s.advance(day)
		}
		for i := range 62 { // all buckets
			s.allowed(claimsUnder(limits, "CN", strconv.Itoa(i)), 1)
			s.advance(24 * time.Minute)
		}
		size := s.do("strlen", redisstore.BoxName(claimsUnder(limits, "CN", "")[0])).(int64)
		t.Logf("%d bytes with a memory of %v", size, memory)
		if size > most || size < most-80 {
			t.Errorf("%d bytes with a memory of %v; want up to %d", size, memory, most)
		}
	}
}
