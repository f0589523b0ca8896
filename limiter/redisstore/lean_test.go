package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/rounds"
)

// The scripts for requests that come alone, that come together, and that ask for several
// limits decide as the one that knows all does, as they do with nothing inlined, and as those for keys of several slots do.
func TestTake_EveryScriptDecidesAlike(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	other := redisstore.NewWithTestClock(s.client, redisstore.Options{Timeout: patient, Prefix: "other"})
	plain := redisstore.NewWithoutInline(s.client, redisstore.Options{Timeout: patient, Prefix: "plain"})
	across := redisstore.NewAcrossSlots(s.client, redisstore.Options{Timeout: patient, Prefix: "across"})
	t.Cleanup(func() { other.Close(); plain.Close(); across.Close() })
	for a := range limiter.NumAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			s.t = t
			s.empty()
			r := rand.New(rand.NewPCG(7, uint64(a)))
			for round := range rounds.Of(60) {
				s.advance(time.Duration(r.IntN(3)) * time.Duration(r.IntN(2500)) * time.Millisecond)
				switch claims := drawn(r, a, 1); r.IntN(12) {
				case 0:
					s.advance(-time.Duration(r.IntN(50)) * time.Millisecond)
				case 1:
					ban := time.Duration(r.IntN(2)) * 300 * time.Millisecond
					for _, store := range []*redisstore.Store{s.store, other, plain, across} {
						s.check(store.Ban(t.Context(), claims, ban))
					}
				}
				var all [][]limiter.Claim
				for range 1 + r.IntN(4)*r.IntN(4) {
					all = append(all, drawn(r, a, 1+r.IntN(2)*r.IntN(3)))
				}
				if r.IntN(2) == 0 { // most are alike, each on a key of its own
					all = alike(r, all)
				}
				errs, ds := s.store.TakeInOneCall(t.Context(), all)
				plainErrs, plainly := plain.TakeInOneCall(t.Context(), all)
				acrossErrs, together := across.TakeInOneCall(t.Context(), all)
				for i, d := range ds {
					var want limiter.Decision
					s.check(errors.Join(other.TakePlain(t.Context(), all[i], &want), errs[i], plainErrs[i], acrossErrs[i]))
					said := func(d limiter.Decision) string { return fmt.Sprint(d.Allowed, d.Outcomes) }
					if said(d) != said(want) || said(plainly[i]) != said(want) || said(together[i]) != said(want) {
						t.Fatalf("round %d, %d of %d requests over %d claims: %s, with nothing inlined %s, across slots %s; want %s",
							round, i+1, len(all), len(all[i]), said(d), said(plainly[i]), said(together[i]), said(want))
					}
				}
			}
		})
	}
}

// alike are as many requests as the first of all, each on another key; some at another cost
// or over a limit less.
func alike(r *rand.Rand, all [][]limiter.Claim) (out [][]limiter.Claim) {
	for _, key := range r.Perm(12)[:len(all)] {
		claims := slices.Clone(all[0])
		for i := range claims {
			claims[i].Key = limiter.KeyOf(fmt.Sprint(key))
		}
		switch r.IntN(8) {
		case 0:
			claims[0].Cost = all[len(all)-1][0].Cost
		case 1:
			claims = claims[:1+r.IntN(len(claims))]
		}
		out = append(out, claims)
	}
	return out
}

// drawn is a request over some limits of a key.
func drawn(r *rand.Rand, a limiter.Algorithm, n int) (claims []limiter.Claim) {
	key := limiter.KeyOf(fmt.Sprint(r.IntN(4)))
	for _, i := range r.Perm(3)[:n] {
		l := limitertest.LimitOf(a, "l:"+string(rune('a'+i)), []limiter.Rate{
			{Count: 3, Window: 2 * time.Second}, {Count: 8, Window: 9 * time.Second}, {Count: 300, Window: time.Minute},
		}[i])
		c := limiter.Claim{Limit: l, Key: key, Cost: 1 + r.Int64N(2), Value: limiter.KeyOf(fmt.Sprint(r.IntN(6)))}
		if a.HasSteps() || a.HasValues() {
			c.Cost = 1
		}
		if a.HasConversion() && r.IntN(4) > 0 { // a note needs the general script
			c.Value = limiter.Key{}
		}
		claims = append(claims, c)
	}
	return claims
}

// What a request that comes alone has Redis do, when it is granted and when it is refused
// on a key that was used: no state is read twice, and of a log one time at most.
func TestTake_RunsFewCommands(t *testing.T) {
	t.Parallel()
	packed := map[string]int{"mget": 1, "set": 1}
	bucket := map[string]int{"mget": 1, "zrangebyscore": 1, "zcard": 1, "zadd": 1, "pexpire": 1, "set": 1}
	for a, want := range map[limiter.Algorithm][2]map[string]int{
		limiter.TokenBucket:   {bucket, {"mget": 1, "zrangebyscore": 1, "zcard": 1, "zscore": 1}},
		limiter.Concurrent:    {bucket, {"mget": 1, "zrangebyscore": 1, "zcard": 1, "zscore": 1}},
		limiter.SlidingLog:    {packed, {"mget": 1}},
		limiter.GCRA:          {packed, {"mget": 1}},
		limiter.FixedWindow:   {packed, {"mget": 1}},
		limiter.SlidingWindow: {packed, {"mget": 1}},
		limiter.Cooldown:      {packed, {"mget": 1}},
		limiter.Distinct: {
			{"mget": 1, "zcard": 1, "hlen": 1, "zcount": 1, "zscore": 1, "hset": 1, "zadd": 1, "pexpire": 2},
			{"mget": 1, "zcard": 1, "hlen": 1, "zcount": 1, "zscore": 1, "zrangebyscore": 1},
		},
	} {
		t.Run(a.String(), func(t *testing.T) {
			s := newClockedTestStore(t)
			n := 0
			ask := func() limiter.Decision {
				l := limitertest.LimitOf(a, "few", limiter.Rate{Count: 7, Window: time.Hour})
				if n++; a.HasSteps() {
					l.Steps = []time.Duration{time.Second}
				}
				return s.take([]limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1, Value: limiter.KeyOf(fmt.Sprint(n))}})
			}
			for range 5 {
				ask()
				s.advance(time.Second)
			}
			for i, allowed := range []bool{true, false} {
				if !allowed {
					ask()
				}
				s.do("config", "resetstat")
				if d := ask(); d.Allowed != allowed {
					t.Fatalf("allowed %v, want %v", d.Allowed, allowed)
				}
				got := s.commands()
				delete(got, "evalsha")
				delete(got, "get") // the clock
				if !maps.Equal(got, want[i]) {
					t.Errorf("allowed %v: runs %v, want %v", allowed, got, want[i])
				}
			}
		})
	}
}

// A request over several cooldowns of one key reads one string, and writes it only if it is
// granted.
func TestCooldown_SeveralAreOneString(t *testing.T) {
	s := newClockedTestStore(t)
	all := listed(limiter.Cooldown, limiter.Rate{Window: time.Minute}, limiter.Rate{Window: time.Hour}, limiter.Rate{Window: 24 * time.Hour})
	s.allowed(all, 1)
	for _, hours := range []time.Duration{3, 12} {
		s.do("config", "resetstat")
		s.denied(all, hours*time.Hour)
		s.advance(hours * time.Hour)
		s.allowed(all, 1)
		if got, want := s.commands(), map[string]int{"evalsha": 2, "get": 2, "mget": 2, "set": 1, "incrby": 1}; !maps.Equal(got, want) { // get, incrby: the clock
			t.Errorf("a refusal and a grant run %v, want %v", got, want)
		}
	}
}

// What a decision costs where nothing is unusual is no memory: neither the caller nor
// what carries its call.
func TestTake_AllocatesNothing(t *testing.T) {
	s := newTestStore(t)
	for a := range limiter.NumAlgorithms {
		l := limitertest.LimitOf(a, a.String()+":10s", limiter.Rate{Count: 1000, Window: 10 * time.Second})
		claims := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}
		if a.HasValues() {
			claims[0].Value = limiter.KeyOf("v")
		}
		var d limiter.Decision
		take := func() {
			s.check(s.store.Take(t.Context(), claims, &d))
		}
		for range 10 {
			take()
		}
		if n := rounds.Allocations(200, take); n != 0 && !raced && !reuse.Poisoned {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}
