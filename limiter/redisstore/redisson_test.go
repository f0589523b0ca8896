package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

func (s *scene) handle(name string) *redisstore.RateLimiter {
	s.t.Helper()
	r, err := s.store.RateLimiter(name, "d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11")
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func config(count int64, window, alive time.Duration) redisstore.RateConfig {
	return redisstore.RateConfig{Rate: limiter.Rate{Count: count, Window: window}, KeepAlive: alive}
}

func (s *scene) setRate(r *redisstore.RateLimiter, c redisstore.RateConfig) {
	s.t.Helper()
	if err := r.SetRate(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) allow(r *redisstore.RateLimiter, n int64) limiter.Outcome {
	s.t.Helper()
	o, err := r.Allow(s.t.Context(), n)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *scene) available(r *redisstore.RateLimiter, want int64) {
	s.t.Helper()
	if got, err := r.Available(s.t.Context()); err != nil || got != want {
		s.t.Fatalf("%d available (%v), want %d", got, err, want)
	}
}

// Keys, fields and members are those of Redisson, byte for byte.
func TestRateLimiter_IsRedissons(t *testing.T) {
	for name, keys := range map[string][]string{
		"redisson:demo": {"redisson:demo", "{redisson:demo}:permits", "{redisson:demo}:value"},
		"a{b}c":         {"a{b}c", "a{b}c:permits", "a{b}c:value"},
	} {
		s := newHeldScene(t)
		r := s.handle(name)
		if set, err := r.TrySetRate(t.Context(), config(10, 2*time.Second, 0)); !set || err != nil {
			t.Fatal(set, err)
		}
		s.allow(r, 3)
		got, err := s.client.Keys(t.Context(), "*[bd]*").Result()
		got = slices.DeleteFunc(got, func(k string) bool { return k == redisstore.TestClock })
		slices.Sort(got)
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("keys %q, want %q", got, keys)
		}
		fields, err := s.client.HGetAll(t.Context(), name).Result()
		if err != nil || fmt.Sprint(fields) != "map[interval:2000 keepAliveTime:0 rate:10 type:0]" {
			t.Errorf("fields %v %v", fields, err)
		}
		if v := s.do("get", keys[2]); v != "7" {
			t.Errorf("value %v", v)
		}
		zs, err := s.client.ZRangeWithScores(t.Context(), keys[1], 0, -1).Result()
		if err != nil || len(zs) != 1 || zs[0].Score != 1_800_000_000_000 {
			t.Fatalf("%v %v", zs, err)
		}
		member := zs[0].Member.(string)
		if int(member[0]) != len(member)-5 || member[len(member)-4:] != "\x03\x00\x00\x00" {
			t.Errorf("member %x", member)
		}
		for _, key := range keys {
			if ttl := s.do("pttl", key); ttl != int64(-1) {
				t.Errorf("%s lives for %v, want for ever as the config says", key, ttl)
			}
		}
	}
	s := newHeldScene(t)
	r := s.handle("own")
	c := config(10, time.Second, 0)
	c.PerClient = true
	s.setRate(r, c)
	s.allow(r, 1)
	const client = "d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11"
	if n := s.do("exists", "{own}:value:"+client, "{own}:permits:"+client); n != int64(2) {
		t.Errorf("%v keys of a client by itself", n)
	}
	if typ := s.do("hget", "own", "type"); typ != "1" {
		t.Errorf("type %v", typ)
	}
}

// All keys live as long as the config, or the hash, says; one without a config is
// an error that a new config ends.
func TestRateLimiter_LivesAndDies(t *testing.T) {
	s := newHeldScene(t)
	r := s.handle("rl")
	if _, err := r.Allow(t.Context(), 1); !errors.Is(err, redisstore.ErrUnset) {
		t.Errorf("allow: %v", err)
	}
	if _, err := r.Available(t.Context()); !errors.Is(err, redisstore.ErrUnset) {
		t.Errorf("available: %v", err)
	}
	if _, err := r.Config(t.Context()); !errors.Is(err, redisstore.ErrUnset) {
		t.Errorf("config: %v", err)
	}
	if ok, err := r.UpdateRate(t.Context(), config(5, time.Second, 0)); ok || err != nil {
		t.Errorf("update of nothing: %v %v", ok, err)
	}
	want := config(5, time.Minute, time.Hour)
	if set, err := r.TrySetRate(t.Context(), want); !set || err != nil {
		t.Errorf("try: %v %v", set, err)
	}
	if set, err := r.TrySetRate(t.Context(), config(9, time.Second, 0)); set || err != nil {
		t.Errorf("try again: %v %v", set, err)
	}
	if got, err := r.Config(t.Context()); got != want || err != nil {
		t.Errorf("config %+v %v, want %+v", got, err, want)
	}
	lives := func(least, most time.Duration) {
		t.Helper()
		for _, key := range []string{"rl", "{rl}:value", "{rl}:permits"} {
			ttl := time.Duration(s.do("pttl", key).(int64)) * time.Millisecond
			if ttl <= least || ttl > most {
				t.Errorf("%s lives for %v, want %v to %v", key, ttl, least, most)
			}
		}
	}
	s.allow(r, 1)
	lives(59*time.Minute, time.Hour)
	s.available(r, 4) // looking does not change that
	lives(59*time.Minute, time.Hour)
	s.setRate(r, config(5, time.Minute, 0))
	s.allow(r, 1)
	if ok, err := r.Expire(t.Context(), 10*time.Minute); !ok || err != nil {
		t.Error(ok, err)
	}
	lives(9*time.Minute, 10*time.Minute)
	s.do("persist", "{rl}:permits")
	s.allow(r, 1) // the hash has a time to live: all get it
	lives(9*time.Minute, 10*time.Minute)
	if ok, err := r.Delete(t.Context()); !ok || err != nil {
		t.Error(ok, err)
	}
	if n := s.do("dbsize"); n != int64(1) {
		t.Errorf("%v keys after delete", n)
	}
	if ok, _ := r.Delete(t.Context()); ok {
		t.Error("deleted twice")
	}
}

// A new rate by SetRate forgets, by UpdateRate keeps what was taken.
func TestRateLimiter_ChangesItsRate(t *testing.T) {
	s := newHeldScene(t)
	r := s.handle("rl")
	s.setRate(r, config(10, 10*time.Second, 0))
	s.allow(r, 6)
	for _, step := range []struct{ count, left int64 }{{20, 14}, {8, 2}, {3, 0}, {7, 1}} {
		if ok, err := r.UpdateRate(t.Context(), config(step.count, 10*time.Second, 0)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		s.available(r, step.left)
	}
	s.allow(r, 1)
	if s.allow(r, 1).Allowed {
		t.Error("8 of 7")
	}
	s.setRate(r, config(7, 10*time.Second, 0))
	s.available(r, 7)
	for _, bad := range []redisstore.RateConfig{{}, config(0, time.Second, 0), config(1, time.Second, time.Millisecond)} {
		if err := r.SetRate(t.Context(), bad); !errors.Is(err, redisstore.ErrRateConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Release gives back at most what is out, and never makes more than the rate.
func TestRateLimiter_Releases(t *testing.T) {
	s := newHeldScene(t)
	r := s.handle("rl")
	s.setRate(r, config(10, 10*time.Second, 0))
	for range 4 {
		s.allow(r, 2)
		s.advance(time.Second)
	}
	if err := r.Release(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	s.available(r, 5)
	if o := s.allow(r, 10); o.Allowed || o.Wait != 8*time.Second {
		t.Errorf("%+v, want the third to come back last, in 8s", o)
	}
	if err := r.Release(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	s.available(r, 10)
	s.allow(r, 10)
	if s.allow(r, 1).Allowed {
		t.Error("more than the rate")
	}
	s.advance(10 * time.Second)
	s.available(r, 10)
	if err := r.Release(t.Context(), -1); !errors.Is(err, limiter.ErrCost) {
		t.Errorf("release of -1: %v", err)
	}
	for _, n := range []int64{0, -3, 11, 1 << 40} {
		if _, err := r.Allow(t.Context(), n); !errors.Is(err, limiter.ErrCost) {
			t.Errorf("allow of %d: %v", n, err)
		}
	}
	if _, err := s.store.RateLimiter("a{b", ""); !errors.Is(err, limiter.ErrLimit) {
		t.Errorf("odd braces: %v", err)
	}
}

// Waiting ends with the permits, at once when they come too late, or with ctx.
func TestRateLimiter_Waits(t *testing.T) {
	s := newScene(t)
	r := s.handle("rl")
	s.setRate(r, config(1, 100*time.Millisecond, 0))
	start := time.Now()
	for range 3 {
		if err := r.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("3 permits within %v", took)
	}
	s.setRate(r, config(1, time.Hour, 0))
	s.allow(r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	start = time.Now()
	if err := r.Wait(ctx, 1); !errors.Is(err, redisstore.ErrTooLate) || time.Since(start) > patient/2 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	gone, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if err := r.Wait(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The older form is a counter that lives for one interval.
func TestRateLimiter_OlderForm(t *testing.T) {
	s := newScene(t)
	r := s.handle("rl").Fixed()
	s.setRate(r, config(3, 200*time.Millisecond, 0))
	for i := range 3 {
		if o := s.allow(r, 1); !o.Allowed || o.Remaining != int64(2-i) {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	o := s.allow(r, 1)
	if o.Allowed || o.Wait <= 0 || o.Wait > 200*time.Millisecond {
		t.Fatalf("%+v", o)
	}
	if n := s.do("exists", "{rl}:permits"); n != int64(0) {
		t.Error("the older form has no permits")
	}
	if err := r.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
}

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

// Whoever asks, a Java program or us by the handle or by a claim: in no window are
// more permits than the rate, and after a pause all are back.
func TestRateLimiter_SharesWithForeigners(t *testing.T) {
	s := newHeldScene(t)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, rate := range []limiter.Rate{{Count: 7, Window: 5 * time.Second}, {Count: 60, Window: 5 * time.Second}, {Count: 500, Window: 5 * time.Second}} {
		name := fmt.Sprint("shared:", rate.Count)
		r := s.handle(name)
		s.setRate(r, redisstore.RateConfig{Rate: rate})
		c := []limiter.Claim{{Limit: &limiter.Limit{Name: "yaml", Rate: limiter.Rate{Count: 9999, Window: time.Minute}}, Cost: 1, Redisson: name}}
		type grant struct{ at, n int64 }
		var grants []grant
		var by [3]int
		now := int64(1_800_000_000_000)
		s.do("set", redisstore.TestClock, now)
		for range 2500 {
			step := rng.Int64N(2 * 5000 / rate.Count)
			now += step
			s.advance(time.Duration(step) * time.Millisecond)
			n, who := 1+rng.Int64N(2), rng.IntN(3)
			var allowed bool
			switch who {
			case 0:
				id := make([]byte, 16)
				binary.LittleEndian.PutUint64(id, rng.Uint64())
				v, err := s.client.Eval(t.Context(), foreignTake, []string{name, "{" + name + "}:value", "{" + name + "}:permits"}, n, now, id).Int()
				if err != nil {
					t.Fatal(err)
				}
				allowed = v == 1
			case 1:
				allowed = s.allow(r, n).Allowed
			case 2:
				c[0].Cost = n
				allowed = s.take(c).Allowed
			}
			if allowed {
				by[who]++
				grants = append(grants, grant{now, n})
			}
		}
		var worst int64
		for i, from := range grants {
			var sum int64
			for _, g := range grants[i:] {
				if g.at-from.at < 5000 {
					sum += g.n
				}
			}
			worst = max(worst, sum)
		}
		if worst > rate.Count || worst < rate.Count*9/10 || slices.Min(by[:]) == 0 {
			t.Errorf("%v: %d in the fullest window, granted by %v", rate, worst, by)
		}
		s.advance(6 * time.Second)
		s.available(r, rate.Count)
	}
}

// A claim that names a limiter goes by its config; without one it writes its own;
// beside others it is taken with all or none.
func TestClaim_NamesARedissonLimiter(t *testing.T) {
	s := newHeldScene(t)
	shared := claim(5, 10*time.Second, 1)
	shared[0].Redisson = "redisson:demo:limit:+8613800138000"
	r := s.handle(shared[0].Redisson)
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
		if err := s.store.Refund(t.Context(), both, d.Permit); err != nil {
			t.Fatal(err)
		}
	}
	s.left(shared, 1)
	s.available(r, 1)
	if err := s.store.Reset(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	s.left(shared, 3)
	if _, err := r.Config(t.Context()); err != nil {
		t.Errorf("reset took the config: %v", err)
	}
	if err := s.store.Ban(t.Context(), shared, time.Hour); !errors.Is(err, limiter.ErrLimit) {
		t.Errorf("ban: %v", err)
	}
	bad := shared[0]
	bad.Redisson = "a{b"
	if err := s.store.Take(t.Context(), []limiter.Claim{bad}, &d); !errors.Is(err, limiter.ErrLimit) {
		t.Errorf("odd braces: %v", err)
	}
	if err := s.client.Get(t.Context(), "x").Err(); err != redis.Nil {
		t.Error(err)
	}
}

// Whatever is lost of a limiter, the next call is no error, and heals it.
func TestRateLimiter_Heals(t *testing.T) {
	s := newHeldScene(t)
	for _, lost := range []string{"{rl}:value", "{rl}:permits"} {
		r := s.handle("rl")
		s.setRate(r, config(10, 10*time.Second, 0))
		s.allow(r, 10)
		s.do("del", lost)
		s.allow(r, 1)
		s.advance(10 * time.Second)
		s.available(r, 10)
		if !s.allow(r, 10).Allowed {
			t.Errorf("without %s: refused", lost)
		}
	}
	r := s.handle("rl") // spent by a rate that was raised behind our back
	s.setRate(r, config(1, 10*time.Second, 0))
	s.allow(r, 1)
	s.do("hset", "rl", "rate", 5)
	s.available(r, 4)
	if !s.allow(r, 4).Allowed {
		t.Error("a raised rate is not seen")
	}
}
