package redisstore_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// Refusals of a shared limiter are remembered, but not for long: Java makes room and
// does not tell. What Go gives back is heard of at once, from any process.
func TestRedissonBatch_RemembersRefusalsForAMoment(t *testing.T) {
	s := newTestStore(t)
	store, other := s.hearing(), s.hearing()
	shared := named("rl", 0, 2, time.Hour)
	for range 2 {
		if !decide(t, store, shared...).Allowed {
			t.Fatal("refused")
		}
	}
	var d limiter.Decision
	refused := func() {
		t.Helper()
		if d = decide(t, store, shared...); d.Allowed || d.Wait < 59*time.Minute {
			t.Fatalf("%+v, want a refusal for an hour", d)
		}
	}
	refused()
	before, began := s.scripts(), time.Now()
	for time.Since(began) < 50*time.Millisecond {
		refused()
	}
	if n, most := s.scripts()-before, 1+int(time.Since(began)/(100*time.Millisecond)); n > most {
		t.Errorf("%d scripts in %v of refusals, want at most %d", n, time.Since(began), most)
	}
	s.do("incrby", "{rl}:value", 1) // as Java's release does
	s.until("what Java gave back is seen", func() bool { return decide(t, store, shared...).Allowed })
	refused()
	r, err := other.RateLimiter("rl", "")
	if err != nil {
		t.Fatal(err)
	}
	s.check(r.Release(t.Context(), 1))
	s.until("what a neighbour gave back is heard of", func() bool { return decide(t, store, shared...).Allowed })
}

// A neighbour's limiter of 100,000 permits, full or about to be counted anew, holds up
// nobody: no request fails, of it or of others, and the breaker stays closed.
func TestRedissonBatch_HoldsUpNobody(t *testing.T) {
	s := newClockedTestStore(t)
	s.javas(limiter.RedissonByte, limiter.Rate{Count: 100_000, Window: 1000 * time.Hour}, 100_000)
	for _, lost := range []bool{false, true} {
		if lost {
			s.do("del", "{rl}:value")
		}
		client := clientOf(t, redisstore.ClientConfig{Addrs: []string{s.server.Addr}, Timeout: time.Second})
		store := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: time.Second})
		defer store.Close()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for k := range 20 {
					claims := named("rl", 0, 5, time.Second)
					if i%2 == 0 {
						claims = claim(1000, time.Second, 1)
						claims[0].Key = limiter.KeyOf("key", string(rune('a'+k)))
					}
					var d limiter.Decision
					if err := store.Take(t.Context(), claims, &d); err != nil {
						t.Errorf("%s: %v", claims[0].RedissonName, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// In the oldest form a permit is given back once, in its own window, and waits end
// with the window.
func TestRedissonBatch_OldestFormCountsAWindow(t *testing.T) {
	s := newTestStore(t)
	shared := named("rl", limiter.RedissonWindow, 3, time.Hour)
	d := s.allowed(shared, 3)
	if late := s.take(shared); late.Allowed || late.Wait <= 59*time.Minute || late.Wait > time.Hour {
		t.Errorf("%+v", late)
	}
	for range 3 {
		s.check(s.store.Refund(t.Context(), shared, d.Permit))
	}
	s.left(shared, 1)
	s.allowed(shared, 1)
	s.do("pexpire", "{rl}:value", 1)
	s.until("the window ends", func() bool { return s.do("exists", "{rl}:value") == int64(0) })
	old := d.Permit
	old.At = old.At.Add(-time.Hour)
	s.allowed(shared, 2)
	s.check(s.store.Refund(t.Context(), shared, old))
	s.left(shared, 1)
	s.check(s.store.Grant(t.Context(), shared))
	s.left(shared, 2)
	s.check(s.store.Reset(t.Context(), shared))
	s.left(shared, 3)
	s.do("lpush", "{rl}:value", "x")
	if err := s.store.Take(t.Context(), shared, &d); !errors.Is(err, redisstore.ErrRedisson) {
		t.Errorf("a value of another type: %v", err)
	}
}

// Giving back many permits goes in bounded steps, to the last of them.
func TestRedissonBatch_GivesBackMany(t *testing.T) {
	s := newClockedTestStore(t)
	s.javas(limiter.RedissonByte, limiter.Rate{Count: 5000, Window: time.Hour}, 5000)
	r := s.handle("rl")
	s.check(r.Release(t.Context(), 3500))
	s.available(r, 3500)
	shared := named("rl", 0, 9000, time.Hour)
	shared[0].Cost = 9000
	s.check(s.store.Grant(t.Context(), shared))
	s.available(r, 5000)
}

// What was granted in place of Redis counts in a shared limiter; in one that cannot
// be used it is lost, and holds up no other.
func TestRedissonBatch_HearsOfGrantsElsewhere(t *testing.T) {
	s := newClockedTestStore(t)
	heardBefore, lostBefore := s.store.Reported()
	s.javas(limiter.RedissonFloat, limiter.Rate{Count: 1000, Window: time.Minute}, 300)
	shared, own := named("rl", 0, 5, time.Second), claim(5, time.Minute, 1)
	permit := limiter.Permit{ID: limiter.KeyOf("a"), At: time.UnixMilli(start)}
	for _, c := range [][]limiter.Claim{shared, own} {
		s.check(s.store.TellAged(t.Context(), c, permit, time.Millisecond))
	}
	s.left(shared, 699)
	s.left(own, 4)
	s.do("hset", "rl", "rate", "0")
	for _, c := range [][]limiter.Claim{shared, own} {
		permit.ID = limiter.KeyOf("b")
		s.check(s.store.TellAged(t.Context(), c, permit, time.Millisecond))
	}
	if n := s.store.Unreported(); n != 0 {
		t.Errorf("%d windows are still to be told of", n)
	}
	if heard, lost := s.store.Reported(); heard-heardBefore != 3 || lost-lostBefore != 1 {
		t.Errorf("heard of %d, lost %d", heard-heardBefore, lost-lostBefore)
	}
}

// Connections that are cut, however many, make no breaker open: Redis is there, and the
// next connection stands.
func TestStore_CutConnectionsAreNoAbsence(t *testing.T) {
	s := newTestStore(t)
	between := redistest.NewFaultProxy(t, s.server.Addr)
	client := connect(t, between.Addr)
	store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	cut := 0
	for range 40 {
		between.Lose("sms.phone")
		var d limiter.Decision
		switch err := store.Take(t.Context(), claim(1000, time.Hour, 1), &d); {
		case errors.Is(err, redisstore.ErrOpen):
			t.Fatalf("after %d cut connections: %v", cut, err)
		case err != nil:
			cut++
		}
	}
	if cut < 10 {
		t.Errorf("only %d calls were cut", cut)
	}
}
