package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A lateStore is a store behind a proxy that holds replies, and another that sees what Redis has counted.
type lateStore struct {
	*redisstore.Store
	t       *testing.T
	proxy   *redistest.FaultProxy
	counted *redisstore.Store
}

// impatience is how long a caller waits for a reply that is held. A busy machine sends what it asks in this time.
const impatience = 400 * time.Millisecond

func newLateStore(t *testing.T, c redisstore.ClientConfig, o redisstore.Options) *lateStore {
	redis := newTestStore(t)
	proxy := redistest.NewFaultProxy(t, redis.server.Addr)
	c.Addrs = []string{proxy.Addr}
	client := clientOf(t, c)
	o.CachedRefusals = -1
	s := &lateStore{t: t, proxy: proxy, Store: redisstore.New(client, o), counted: redis.store}
	t.Cleanup(func() { s.Close() })
	return s
}

// warm opens the connection for calls like that of claims and others, and has Redis learn their script.
func (s *lateStore) warm(claims []limiter.Claim, others ...[]limiter.Claim) {
	warmed := func(claims []limiter.Claim) []limiter.Claim {
		all := slices.Clone(claims)
		for i := range all {
			if all[i].Key = limiter.KeyOf("warm"); all[i].RedissonName != "" {
				all[i].RedissonName = "warm"
			}
		}
		return all
	}
	others = slices.Clone(others)
	for i := range others {
		others[i] = warmed(others[i])
	}
	eventually(s.t, "a connection stands", func() bool {
		_, _, err := limitertest.TakeGroups(s.t.Context(), s, warmed(claims), others...)
		return err == nil
	})
}

func (s *lateStore) used(claims []limiter.Claim) (all int64) {
	s.t.Helper()
	in, err := s.counted.Inspect(s.t.Context(), claims)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, status := range in.Statuses {
		all += status.Used
	}
	return all
}

// takesTooLate has Redis grant claims after their caller has given up, and wants that all come back.
func (s *lateStore) takesTooLate(claims []limiter.Claim, others ...[]limiter.Claim) {
	s.t.Helper()
	s.warm(claims, others...)
	all := slices.Concat(claims, slices.Concat(others...))
	s.proxy.Hold()
	if _, _, err := limitertest.TakeGroups(s.t.Context(), s, claims, others...); !errors.Is(err, limiter.ErrUnavailable) {
		s.t.Fatalf("take: %v; want that Redis does not reply", err)
	}
	eventually(s.t, "Redis has granted", func() bool { return s.used(all) == int64(len(all)) })
	s.proxy.Release()
	eventually(s.t, "all has come back", func() bool { return s.used(all) == 0 })
}

func limitOf(a limiter.Algorithm) *limiter.Limit {
	return limitertest.LimitOf(a, a.String()+":5", limiter.Rate{Count: 5, Window: time.Hour})
}

// What Redis grants to a call that nobody waits for any more comes back, whatever counts it.
func TestLate_ComesBack(t *testing.T) {
	t.Parallel()
	impatient := redisstore.ClientConfig{Timeout: impatience, BreakAfter: 100}
	options := redisstore.Options{Timeout: impatience}
	for a := range limiter.NumAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			s := newLateStore(t, impatient, options)
			s.takesTooLate([]limiter.Claim{{Limit: limitOf(a), Key: limiter.KeyOf("k"), Cost: 1, Value: limiter.KeyOf("v")}})
		})
	}
	redisson := []limiter.Claim{{Limit: limitOf(limiter.TokenBucket), Key: limiter.KeyOf("k"), Cost: 1, RedissonName: "shared"}}
	for name, test := range map[string]struct {
		claims []limiter.Claim
		others [][]limiter.Claim
	}{
		"shared with Redisson": {redisson, nil},
		"several limits":       {[]limiter.Claim{{Limit: limitOf(limiter.GCRA), Cost: 1}, {Limit: limitOf(limiter.SlidingLog), Cost: 1}}, nil},
		"shadows":              {[]limiter.Claim{{Limit: limitOf(limiter.GCRA), Cost: 1}}, [][]limiter.Claim{{{Limit: limitOf(limiter.FixedWindow), Cost: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newLateStore(t, impatient, options).takesTooLate(test.claims, test.others...)
		})
	}
}

// It comes back as well while the circuit breaker is open at first.
func TestLate_ComesBackAfterTheBreaker(t *testing.T) {
	t.Parallel()
	c := redisstore.ClientConfig{Timeout: impatience, BreakAfter: 1, BreakRest: time.Second}
	s := newLateStore(t, c, redisstore.Options{Timeout: impatience})
	s.takesTooLate([]limiter.Claim{{Limit: limitOf(limiter.GCRA), Cost: 1}})
}

// A caller whose context ends is charged nothing, on a connection that is well.
func TestLate_CallerLeaves(t *testing.T) {
	s := newLateStore(t, redisstore.ClientConfig{Timeout: patient}, redisstore.Options{Timeout: patient})
	claims := []limiter.Claim{{Limit: limitOf(limiter.SlidingWindow), Cost: 1}}
	s.warm(claims, nil)
	s.proxy.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		var d limiter.Decision
		left <- s.Take(ctx, claims, &d)
	}()
	eventually(t, "Redis has granted", func() bool { return s.used(claims) == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller: %v", err)
	}
	s.proxy.Release()
	eventually(t, "it has come back", func() bool { return s.used(claims) == 0 })
}

// A Redis that stands still grants afterwards what it was sent: all of that comes back, and nothing of what is refused.
func TestLate_RedisStandsStill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := storeOn(t, clientOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: 100 * time.Millisecond, BreakAfter: 3, BreakRest: 100 * time.Millisecond}), redisstore.Options{Timeout: 100 * time.Millisecond, CachedRefusals: -1})
	claims := []limiter.Claim{{Limit: limitOf(limiter.GCRA), Key: limiter.KeyOf("k"), Cost: 2}}
	var d limiter.Decision
	eventually(t, "one is taken", func() bool { return s.Take(t.Context(), claims, &d) == nil })
	watcher := connect(t, server.Addr)
	freed := watcher.Subscribe(t.Context(), "weir:freed")
	defer freed.Close()
	if _, err := freed.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	got := make(chan error)
	for range 5 { // one of which fits
		go func() {
			var d limiter.Decision
			got <- s.Take(t.Context(), claims, &d)
		}()
	}
	for range 5 {
		if err := <-got; !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("take: %v", err)
		}
	}
	server.Signal(syscall.SIGCONT)
	if _, err := freed.ReceiveMessage(t.Context()); err != nil { // when permits come back
		t.Fatal(err)
	}
	admin := redisstore.New(watcher, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	eventually(t, "all came back but the first two", func() bool { // another may have had room meanwhile
		in, err := admin.Inspect(t.Context(), claims)
		return err == nil && in.Statuses[0].Used == 2
	})
}

// What cannot be refunded while Redis is away is refunded when it is back.
func TestRefund_WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for a := range limiter.NumAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			s := newLateStore(t, redisstore.ClientConfig{Timeout: impatience, BreakAfter: 1, BreakRest: time.Second}, redisstore.Options{Timeout: impatience})
			claims := []limiter.Claim{{Limit: limitOf(a), Key: limiter.KeyOf("k"), Cost: 1, Value: limiter.KeyOf("v")}}
			s.warm(claims)
			var d limiter.Decision
			if err := s.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			s.proxy.Hold()
			other := []limiter.Claim{{Limit: limitOf(a), Key: limiter.KeyOf("other"), Cost: 1, Value: limiter.KeyOf("v")}}
			if err := s.Peek(t.Context(), other, new(limiter.Decision)); err == nil {
				t.Fatal("Redis replies")
			}
			if err := s.Refund(t.Context(), claims, d.Permit); !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatalf("refund: %v; want that Redis is not called", err)
			}
			s.proxy.Release()
			eventually(t, "it has come back", func() bool { return s.used(claims) == 0 })
		})
	}
}
