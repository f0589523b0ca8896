package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// spoilers are ways to make one key of a window something else.
func spoilers(s *testStore, c []limiter.Claim) map[string]func() {
	keys := []string{name(c) + ":value", name(c) + ":permits"}
	if a := c[0].Limit.Algorithm; a == limiter.Concurrent {
		keys = []string{name(c) + ":{concurrent}:value", name(c) + ":{concurrent}:permits"}
	} else if a == limiter.Distinct {
		keys = []string{name(c) + ":{distinct}:value", name(c) + ":{distinct}:permits"}
	} else if a != limiter.TokenBucket {
		keys = []string{redisstore.BoxName(c[0])}
	}
	all := map[string]func(){}
	for _, key := range keys {
		all["a list as "+key[strings.LastIndexByte(key, ':'):]] = func() {
			s.do("del", key)
			s.do("rpush", key, "x")
		}
	}
	if len(keys) == 1 && c[0].Limit.Algorithm.IsPacked() {
		all["garbage"] = func() { s.do("set", keys[0], "garbage") }
	}
	return all
}

// One key of another type fails the claims that ask for it, and nothing else: not the
// others that travel with them, nor what they take. Reset heals it.
func TestStore_OneBadKeyIsOneBadClaim(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for a := range limiter.NumAlgorithms {
		for _, taken := range []int{0, 3, 20} {
			if (a == limiter.Cooldown || a == limiter.Distinct) && taken > 0 {
				continue
			}
			s.t = t
			s.empty()
			of := func(key string, l *limiter.Limit) []limiter.Claim {
				return []limiter.Claim{{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf("v")}}
			}
			l := limitertest.LimitOf(a, "l", limiter.Rate{Count: 50, Window: time.Minute})
			bad := of("bad", l)
			for what, spoil := range spoilers(s, bad) {
				t.Run(fmt.Sprint(a, taken, what), func(t *testing.T) {
					s.t = t
					s.check(s.store.Reset(t.Context(), bad))
					for range taken {
						s.allowed(bad, 1)
					}
					spoil()
					other := &limiter.Limit{Name: "other", Rate: l.Rate}
					s.together(t, bad, func(i int) []limiter.Claim { return of(fmt.Sprint(what, i), l) })
					s.together(t, append(of("bad", other), bad...), func(i int) []limiter.Claim { return of(fmt.Sprint(what, "more", i), l) })
					if got := s.do("exists", name(of("bad", other))+":value"); got != int64(0) {
						t.Error("what was asked for beside the bad claim is taken")
					}
					if err := s.store.Reset(t.Context(), bad); err != nil {
						t.Fatalf("reset: %v", err)
					}
					s.allowed(bad, 1)
				})
			}
		}
	}
}

// together asks for bad and for others in one call: bad fails and says what to do,
// the others are granted.
func (s *testStore) together(t *testing.T, bad []limiter.Claim, other func(i int) []limiter.Claim) {
	t.Helper()
	all := [][]limiter.Claim{other(0), bad, other(1), other(2)}
	errs, ds := s.store.TakeInOneCall(t.Context(), all)
	for i := range all {
		switch {
		case i == 1 && (!errors.Is(errs[i], limiter.ErrUnavailable) || !strings.Contains(errs[i].Error(), "of another type than its limit keeps there; reset it: l")):
			t.Errorf("the bad claim: %v", errs[i])
		case i != 1 && (errs[i] != nil || !ds[i].Allowed):
			t.Errorf("another claim: %v, allowed %v", errs[i], ds[i].Allowed)
		}
	}
	permits := []limiter.Permit{ds[0].Permit, {ID: [16]byte{1}, At: time.Now()}, ds[2].Permit, ds[3].Permit}
	_, errs = s.store.RefundInOneCall(t.Context(), all, permits)
	for i := range all {
		if i != 1 && errs[i] != nil {
			t.Errorf("the refund of another claim: %v", errs[i])
		}
	}
}

// One key of another type keeps no report of other keys from being heard.
func TestReport_PastABadKey(t *testing.T) {
	s := newTestStore(t)
	bad, good := claim(10, time.Hour, 1), claim(10, time.Hour, 1)
	good[0].Key = limiter.KeyOf("good")
	s.do("rpush", name(bad)+":permits", "x")
	for i, c := range [][]limiter.Claim{bad, good} {
		s.store.Report(c, limiter.Permit{ID: [16]byte{byte(i + 1)}, At: time.Now()})
	}
	s.until("everything is reported", func() bool { return s.store.Unreported() == 0 })
	s.left(good, 9)
}
