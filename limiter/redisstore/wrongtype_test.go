package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/rounds"
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

// Whatever the bytes of a key are, a request that asks for it fails alone, or is decided with a wait of at most the horizon:
// those that travel with it are decided as usual.
func TestStore_DamagedKeyFailsAlone(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	random := rand.New(rand.NewPCG(seed(1), 1))
	for a := range limiter.NumAlgorithms {
		for round := range rounds.Of(30) {
			s.damage(random, a, fmt.Sprint(a, round))
		}
	}
}

// damage damages what some requests have left of a key, and asks for it together with others.
func (s *testStore) damage(r *rand.Rand, a limiter.Algorithm, key string) {
	s.t.Helper()
	window, count := time.Minute, []int64{1, 30, 200}[r.IntN(3)]
	of := func(key string, windows ...int) (claims []limiter.Claim) {
		for _, i := range windows {
			l := limitertest.LimitOf(a, fmt.Sprint("l:", i), limiter.Rate{Count: count, Window: time.Duration(1+i) * window})
			claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf(key), Cost: 1, Value: limiter.KeyOf(fmt.Sprint(r.IntN(20)))})
		}
		return claims
	}
	windows := []int{0}
	if r.IntN(2) == 0 {
		windows = []int{0, 1}
	}
	for i := range 1 + r.IntN(6)*r.IntN(6) {
		s.advance(time.Duration(r.IntN(9000)) * time.Millisecond)
		d := s.take(of(key, windows...))
		if i%4 == 1 && d.Allowed {
			s.check(s.store.Refund(s.t.Context(), of(key, windows...), d.Permit))
		}
	}
	s.spoil(r, of(key, 0)[0].Key.String())
	all := [][]limiter.Claim{of(key+"x", 0), of(key, windows...), of(key+"y", 0), of(key, 0), of(key+"z", windows...)}
	if r.IntN(2) == 0 {
		all = all[:3]
	}
	errs, ds := s.store.TakeInOneCall(s.t.Context(), all)
	for i, d := range ds {
		if isBad := i%2 == 1; isBad && errs[i] == nil {
			for j, o := range d.Outcomes {
				if o.Wait < 0 || o.Wait > all[i][j].Limit.Horizon() && !o.Banned {
					s.t.Errorf("%s: %+v of a damaged key", key, o)
				}
			}
		} else if !isBad && (errs[i] != nil || !d.Allowed) {
			s.t.Errorf("%s of %d: beside a damaged key %v, allowed %v", key, count, errs[i], d.Allowed)
		}
	}
}

// spoil changes bytes of all keys of a hash tag.
func (s *testStore) spoil(r *rand.Rand, tag string) {
	s.t.Helper()
	ctx := context.Background()
	keys, err := s.client.Keys(ctx, "*"+tag+"*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, key := range keys {
		kind := s.client.Type(ctx, key).Val()
		switch kind {
		case "string":
			s.client.Set(ctx, key, spoiled(r, s.client.Get(ctx, key).Val()), redis.KeepTTL)
		case "zset":
			members := s.client.ZRangeWithScores(ctx, key, 0, -1).Val()
			one := members[r.IntN(len(members))]
			score := one.Score
			if r.IntN(3) == 0 {
				score = []float64{-1e300, 0, 1e17, 1.5}[r.IntN(4)]
			}
			s.client.ZAdd(ctx, key, redis.Z{Score: score, Member: spoiled(r, one.Member.(string))})
			if r.IntN(2) == 0 {
				s.client.ZRem(ctx, key, one.Member)
			}
		case "hash":
			for field, value := range s.client.HGetAll(ctx, key).Val() {
				s.client.HSet(ctx, key, field, spoiled(r, value))
				break
			}
		}
	}
}

// spoiled is text with a few bytes changed, added or left out.
func spoiled(r *rand.Rand, text string) string {
	b := []byte(text)
	for range 1 + r.IntN(3) {
		switch at := r.IntN(len(b) + 1); r.IntN(4) {
		case 0:
			b = b[:at]
		case 1:
			b = append(b, byte(r.IntN(256)))
		default:
			if at < len(b) {
				b[at] = []byte{0, 1, 2, 255, byte(r.IntN(256))}[r.IntN(5)]
			}
		}
	}
	return string(b)
}
