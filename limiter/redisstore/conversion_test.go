package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

const day = 24 * time.Hour

// converting are the windows of a limit with a conversion of 50 %.
func converting(counts map[time.Duration]int64) (limits []*limiter.Limit) {
	for _, window := range []time.Duration{time.Hour, day} {
		if n := counts[window]; n > 0 {
			limits = append(limits, limitertest.LimitOf(limiter.Conversion, "sms.unused:"+window.String(), limiter.Rate{Count: n, Window: window}))
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
	s.returns(limits, subject, 1)
}

// returns gives back what a subject was granted by so many decisions.
func (s *testStore) returns(limits []*limiter.Limit, subject string, decisions int) {
	s.t.Helper()
	if n, err := s.store.Return(s.t.Context(), limits, limiter.KeyOf(subject)); n != decisions || err != nil {
		s.t.Fatalf("permits of %d decisions are returned, %v; want %d", n, err, decisions)
	}
}

// A key lives as long as what was taken or confirmed, whoever writes it and whatever is beside it in the string.
func TestConversion_KeysLiveAWindow(t *testing.T) {
	for name, counts := range map[string]map[time.Duration]int64{
		"one window": {day: 3}, "two windows": {time.Hour: 3, day: 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClockedTestStore(t)
			limits := converting(counts)
			key := redisstore.BoxName(claimsUnder(limits, "CN", "")[0])
			lives := func() {
				t.Helper()
				if ttl := time.Duration(s.do("pttl", key).(int64)) * time.Millisecond; ttl < day-time.Minute || ttl > day+time.Hour {
					t.Errorf("the key lives for %v; want a window of %v", ttl, day)
				}
			}
			s.allowed(claimsUnder(limits, "CN", "eve"), 1)
			lives()
			s.advance(12 * time.Hour)
			s.returns(limits, "eve", 1)
			s.confirm(limits, "CN", "ann")
			lives()
			s.advance(12 * time.Hour)
			for range 3 { // several requests in one call
				s.takesTogether(limits, "CN")
			}
			lives()
			s.check(s.store.Ban(t.Context(), claimsUnder(limits, "CN", "bob"), time.Minute))
			lives()
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

// However much is counted, a window of a key takes at most 0.6 kB.
func TestConversion_IsSmall(t *testing.T) {
	s := newClockedTestStore(t)
	limits := converting(map[time.Duration]int64{day: 1000})
	for i := range 62 { // all buckets
		s.confirm(limits, "CN", "used"+strconv.Itoa(i))
		s.allowed(claimsUnder(limits, "CN", strconv.Itoa(i)), 1)
		s.advance(24 * time.Minute)
	}
	size := s.do("strlen", redisstore.BoxName(claimsUnder(limits, "CN", "")[0])).(int64)
	t.Logf("%d bytes", size)
	if size > 600 || size < 520 {
		t.Errorf("%d bytes; want up to 600", size)
	}
}
