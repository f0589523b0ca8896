package redisstore_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// foreignTake takes n permits the way that Redisson is known to: by the client's
// clock, 16 bytes of id, and without a cap unless something had expired.
const foreignTake = `
local c = redis.call('HMGET', KEYS[1], 'rate', 'interval')
local rate, interval, n, now = tonumber(c[1]), tonumber(c[2]), tonumber(ARGV[1]), tonumber(ARGV[2])
local function sum(list) local s = 0 for _, m in ipairs(list) do s = s + struct.unpack('I', string.sub(m, -4)) end return s end
local v = tonumber(redis.call('GET', KEYS[2]))
if v then
  local back = sum(redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval))
  if back > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], 0, now - interval)
    v = v + back
    if v > rate then v = rate - sum(redis.call('ZRANGE', KEYS[3], 0, -1)) end
    redis.call('SET', KEYS[2], v)
  end
  if v < n then return 0 end
else
  redis.call('SET', KEYS[2], rate)
end
redis.call('ZADD', KEYS[3], now, struct.pack('Bc0I', #ARGV[3], ARGV[3], n))
redis.call('DECRBY', KEYS[2], n)
return 1`

type grant struct{ at, n int64 }

// Whoever asks, a Java program or us by the handle or by a claim: the fullest window
// holds the rate, no more, and after a pause all permits are back.
func TestRateLimiter_SharesWithForeigners(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	seed, n := rand.Uint64(), rounds.Of(6000)
	if said, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64); err == nil && said != 0 {
		seed = said
	}
	t.Logf("%d calls: -rapid.seed=%d", n, seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, rate := range []limiter.Rate{{Count: 7, Window: time.Minute}, {Count: 60, Window: time.Minute}, {Count: 300, Window: time.Minute}, {Count: 900, Window: time.Minute}} {
		name := fmt.Sprint("shared:", rate.Count)
		r := s.handle(name)
		s.setRate(r, redisstore.RateConfig{Rate: rate})
		c := []limiter.Claim{{Limit: &limiter.Limit{Name: "yaml", Rate: limiter.Rate{Count: 9999, Window: time.Hour}}, Cost: 1, RedissonName: name}}
		var inside []grant // the window that ends now
		var sum, worst int64
		var by [3]int
		now := int64(1_800_000_000_000)
		s.do("set", redisstore.TestClock, now)
		for range n / 4 {
			step := rng.Int64N(2 * 60_000 / rate.Count)
			now += step
			s.advance(time.Duration(step) * time.Millisecond)
			cost, who := 1+rng.Int64N(2), rng.IntN(3)
			var allowed bool
			switch who {
			case 0:
				id := make([]byte, 16)
				binary.LittleEndian.PutUint64(id, rng.Uint64())
				v, err := s.client.Eval(t.Context(), foreignTake, []string{name, "{" + name + "}:value", "{" + name + "}:permits"}, cost, now, id).Int()
				if err != nil {
					t.Fatal(err)
				}
				allowed = v == 1
			case 1:
				allowed = s.allow(r, cost).Allowed
			case 2:
				c[0].Cost = cost
				allowed = s.take(c).Allowed
			}
			if allowed {
				by[who]++
				inside, sum = append(inside, grant{now, cost}), sum+cost
			}
			for len(inside) > 0 && inside[0].at <= now-60_000 {
				inside, sum = inside[1:], sum-inside[0].n
			}
			worst = max(worst, sum)
		}
		t.Logf("%v: the fullest window holds %.2f x the rate; grants by Redisson's way, handle, claim: %v", rate, float64(worst)/float64(rate.Count), by)
		if isFull := worst == rate.Count; worst > rate.Count || !isFull && int64(n/4) > rate.Count || slices.Min(by[:]) == 0 { // few calls do not fill it
			t.Errorf("%v: %d in the fullest window, granted by %v", rate, worst, by)
		}
		s.advance(61 * time.Second)
		s.available(r, rate.Count)
	}
}

// What Java releases, which raises value and leaves the entries, is free for us as
// well, but never comes back a second time; what we release is free for both.
func TestRateLimiter_BelievesWhatJavaReleases(t *testing.T) {
	s := newClockedTestStore(t)
	r := s.handle("rl")
	s.setRate(r, config(10, 10*time.Second, 0))
	value := func(want string) {
		t.Helper()
		if got := s.do("get", "{rl}:value"); got != want {
			t.Errorf("value %v, want %s", got, want)
		}
	}
	s.allow(r, 3)
	s.advance(4 * time.Second)
	s.allow(r, 7)
	s.do("incrby", "{rl}:value", 4) // as Java's release(4) does
	s.available(r, 4)
	s.advance(time.Second)
	if !s.allow(r, 4).Allowed {
		t.Error("what Java has released is refused")
	}
	if o := s.allow(r, 1); o.Allowed || o.Wait != 9*time.Second {
		t.Errorf("%+v, want a refusal for 9s: 14 are out", o)
	}
	s.advance(5 * time.Second) // the 3 expire, and 11 are out
	s.available(r, 0)
	s.advance(4 * time.Second) // the 7 expire, and 4 are out
	s.available(r, 6)
	s.allow(r, 1)
	value("5")
	s.check(r.Release(t.Context(), 5))
	s.available(r, 10)
	if v, err := s.client.Eval(t.Context(), foreignTake, []string{"rl", "{rl}:value", "{rl}:permits"}, 7, 1_800_000_014_000, "0123456789abcdef").Int(); v != 1 {
		t.Errorf("Java takes the 7 that are free: %v %v", v, err)
	}
	s.available(r, 3)
}

// A claim that names a limiter goes by its config; without one it writes its own;
// beside others it is taken with all or none.
func TestClaim_NamesARedissonLimiter(t *testing.T) {
	s := newClockedTestStore(t)
	shared := claim(5, 10*time.Second, 1)
	shared[0].RedissonName = "redisson:demo:limit:+8613800138000"
	r := s.handle(shared[0].RedissonName)
	s.allowed(shared, 1)
	if got, err := r.Config(t.Context()); err != nil || got.Rate != shared[0].Limit.Rate || got.KeepAlive < 10*time.Second {
		t.Errorf("config %+v %v", got, err)
	}
	if _, err := r.UpdateRate(t.Context(), config(3, 20*time.Second, 0)); err != nil {
		t.Fatal(err)
	}
	s.left(shared, 2) // its hash decides
	own := claim(4, time.Minute, 1)[0]
	own.Limit.Name = "own"
	both := []limiter.Claim{shared[0], own}
	d := s.allowed(both, 2)
	s.denied(both, 20*time.Second)
	s.left([]limiter.Claim{own}, 2)
	for range 2 {
		s.check(s.store.Refund(t.Context(), both, d.Permit))
	}
	s.left(shared, 1)
	s.available(r, 1)
	s.check(s.store.Reset(t.Context(), shared))
	s.left(shared, 3)
	if _, err := r.Config(t.Context()); err != nil {
		t.Errorf("reset took the config: %v", err)
	}
	if err := s.store.Ban(t.Context(), shared, time.Hour); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("ban: %v", err)
	}
	bad := shared[0]
	bad.RedissonName = "a{b"
	if err := s.store.Take(t.Context(), []limiter.Claim{bad}, &d); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("odd braces: %v", err)
	}
}

// A part of what a claim took on a shared limiter comes back, once, and the rest afterwards, in each form; the entry that
// Java programs read keeps its time.
func TestClaim_RefundsAPartOfARedissonLimiter(t *testing.T) {
	s := newClockedTestStore(t)
	for f := limiter.RedissonByte; f <= limiter.RedissonWindow; f++ {
		t.Run(f.String(), func(t *testing.T) {
			shared := claim(10, 10*time.Second, 6)
			shared[0].RedissonName, shared[0].RedissonFormat = "redisson:part:"+f.String(), f
			s.t = t
			d := s.allowed(shared, 1)
			if f != limiter.RedissonWindow { // whose end is Redis' own
				s.advance(4 * time.Second)
			}
			part := slices.Clone(shared)
			part[0].Cost, part[0].Taken = 5, 6
			asked := slices.Clone(shared)
			asked[0].Cost = 1
			for range 2 {
				s.check(s.store.Refund(t.Context(), part, d.Permit))
				s.left(asked, 9)
			}
			if f == limiter.RedissonWindow {
				return // it remembers that the decision was refunded
			}
			part[0].Cost, part[0].Taken = 1, 0
			s.check(s.store.Refund(t.Context(), part, d.Permit))
			s.left(asked, 10)
		})
	}
}

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
