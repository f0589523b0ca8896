package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

const start = 1_800_000_000_000 // of a testStore with a clock of its own, ms

// isPacked is an entry as a Redisson of that form packs the i-th of them.
func isPacked(f limiter.RedissonFormat, i, n int) string {
	count := binary.LittleEndian.AppendUint32(nil, uint32(n))
	id := binary.BigEndian.AppendUint64([]byte("java-foo"), uint64(i))
	switch f {
	case limiter.RedissonFloat:
		return string(id[12:]) + string(count)
	case limiter.RedissonLong:
		return "\x08\x00\x00\x00\x00\x00\x00\x00" + string(id[8:]) + string(count)
	}
	return "\x10" + string(id) + string(count)
}

// javas gives the limiter "rl" a hash and so many entries of Java's, one permit
// each and one each ms, the last of them now; value as it must be.
func (s *testStore) javas(f limiter.RedissonFormat, rate limiter.Rate, entries int) {
	s.t.Helper()
	s.do("hset", "rl", "rate", rate.Count, "interval", rate.Window.Milliseconds(), "type", 0)
	s.do("set", "{rl}:value", rate.Count-int64(entries))
	for i := 0; i < entries; i += 1000 {
		var zs []redis.Z
		for k := i; k < min(i+1000, entries); k++ {
			zs = append(zs, redis.Z{Score: float64(start - entries + 1 + k), Member: isPacked(f, k, 1)})
		}
		s.check(s.client.ZAdd(s.t.Context(), "{rl}:permits", zs...).Err())
	}
}

func named(name string, f limiter.RedissonFormat, count int64, window time.Duration) []limiter.Claim {
	c := claim(count, window, 1)
	c[0].RedissonName, c[0].RedissonFormat = name, f
	return c
}

// spent is how long Redis had a processor, on the average of n calls of f.
func (s *testStore) spent(n int, f func()) time.Duration {
	s.t.Helper()
	before := redistest.Processor(s.t, s.client)
	for range n {
		f()
	}
	return (redistest.Processor(s.t, s.client) - before) / time.Duration(n)
}

// A limiter that Java has filled with 100,000 permits costs a request next to
// nothing, whatever state it is in, and the answers are exact.
func TestRedissonBatch_CostsTheSameHoweverManyAreOut(t *testing.T) {
	const (
		many = 100_000
		most = 8 * time.Millisecond // an eighth of that on a calm machine where it is most; to read all entries takes over 30
	)
	rate := limiter.Rate{Count: many, Window: time.Hour}
	s := newClockedTestStore(t)
	s.javas(limiter.RedissonByte, rate, many)
	s.do("copy", "{rl}:permits", "full")
	for name, c := range map[string]struct {
		before  func(s *testStore)
		allowed bool
		wait    time.Duration
	}{
		"full":               {func(*testStore) {}, false, time.Hour - many*time.Millisecond + time.Millisecond},
		"one is back":        {func(s *testStore) { s.advance(time.Hour - many*time.Millisecond + time.Millisecond) }, true, 0},
		"half is back":       {func(s *testStore) { s.advance(time.Hour - many/2*time.Millisecond) }, true, 0},
		"all is back":        {func(s *testStore) { s.advance(time.Hour) }, true, 0},
		"room":               {func(s *testStore) { s.do("hset", "rl", "rate", many+100); s.do("set", "{rl}:value", 100) }, true, 0},
		"released by Java":   {func(s *testStore) { s.do("incrby", "{rl}:value", 50) }, true, 0},
		"value is lost":      {func(s *testStore) { s.do("del", "{rl}:value") }, false, time.Millisecond},
		"the clock went off": {func(s *testStore) { s.advance(-time.Hour) }, false, time.Hour},
	} {
		s.javas(limiter.RedissonByte, rate, 0)
		s.do("set", "{rl}:value", 0)
		s.do("copy", "full", "{rl}:permits", "replace")
		s.do("set", redisstore.TestClock, start)
		c.before(s)
		if got := s.take(named("rl", 0, 5, time.Second)); got.Allowed != c.allowed || !c.allowed && got.Wait != c.wait {
			t.Errorf("%s: allowed %v wait %v, want %v %v", name, got.Allowed, got.Wait, c.allowed, c.wait)
		}
		spent := s.spent(50, func() { s.take(named("rl", 0, 5, time.Second)) })
		t.Logf("%s: %v of Redis each", name, spent)
		if spent > most {
			t.Errorf("%s: %v of Redis each", name, spent)
		}
	}
}

// A value that is lost is found again from any number of entries, in bounded steps,
// and never is there more than there was.
func TestRedissonBatch_CountsManyEntriesInSteps(t *testing.T) {
	const many = 20_000
	s := newClockedTestStore(t)
	s.javas(limiter.RedissonByte, limiter.Rate{Count: many + 3, Window: time.Hour}, many)
	s.do("del", "{rl}:value")
	granted, calls := 0, 0
	for ; calls < 60; calls++ {
		if s.take(named("rl", 0, 5, time.Second)).Allowed {
			granted++
		}
	}
	if granted != 3 {
		t.Errorf("%d granted in %d calls, want the 3 that are left", granted, calls)
	}
	if n := s.do("zcard", "{rl}:permits").(int64); n > 600 {
		t.Errorf("%d entries are left to count", n)
	}
	s.advance(time.Hour)
	s.available(s.handle("rl"), many+3)
}

// Entries of any version are read, and written as they are; with none, as the claim
// says. Java's own reading of them finds what we took.
func TestRedissonBatch_PacksAsItFinds(t *testing.T) {
	t.Parallel()
	forms := []limiter.RedissonFormat{limiter.RedissonByte, limiter.RedissonLong, limiter.RedissonFloat}
	s := newClockedTestStore(t)
	for _, there := range forms {
		for _, said := range forms {
			for _, size := range []int{0, 3, 300} {
				s.empty()
				s.javas(there, limiter.Rate{Count: 1000, Window: time.Minute}, size)
				d := s.allowed(named("rl", said, 5, time.Second), 20)
				want := there
				if size == 0 {
					want = said
				}
				length := len(isPacked(want, 0, 1))
				if want == limiter.RedissonByte {
					length = 1 + 8 + 4 // our ids are shorter, as those of 3.17
				}
				members := s.client.ZRange(t.Context(), "{rl}:permits", 0, -1).Val()
				ours := 0
				for _, m := range members {
					if len(m) == length {
						ours++
					}
				}
				if len(members) != size+20 || ours < 20 {
					t.Errorf("%v beside %d of %v: %d entries, %d of %d bytes", said, size, there, len(members), ours, length)
				}
				s.left(named("rl", said, 5, time.Second), int64(1000-size-20))
				s.check(s.store.Refund(t.Context(), named("rl", said, 5, time.Second), d.Permit))
				s.left(named("rl", said, 5, time.Second), int64(1000-size-19))
			}
		}
	}
}

// state is everything that is in Redis.
func (s *testStore) state() string {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %x %v\n", k, s.client.Dump(s.t.Context(), k).Val(), s.client.TTL(s.t.Context(), k).Val())
	}
	return b.String()
}

// What cannot be used is refused, for this limiter alone, with nothing written, and
// reset heals it.
func TestRedissonBatch_RefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	hset := func(args ...any) func(s *testStore) {
		return func(s *testStore) { s.do(append([]any{"hset", "rl"}, args...)...) }
	}
	also := func(f limiter.RedissonFormat) func(s *testStore) {
		return func(s *testStore) { s.do("zadd", "{rl}:permits", start, isPacked(f, 7, 1)) }
	}
	for name, c := range map[string]struct {
		before func(s *testStore)
		says   string
	}{
		"rate 0":            {hset("rate", "0"), "rate is 0"},
		"rate below 0":      {hset("rate", "-5"), "rate is -5"},
		"no number":         {hset("rate", "many"), "rate is many"},
		"not a number":      {hset("rate", "nan"), "rate is nan"},
		"a huge rate":       {hset("rate", "1e+17"), "rate is 1e+17"},
		"interval 0":        {hset("interval", "0"), "interval is 0"},
		"endless interval":  {hset("interval", "9223372036854775807"), "interval is 9223372036854775807"},
		"no interval":       {func(s *testStore) { s.do("hdel", "rl", "interval") }, "interval is missing"},
		"another hash":      {func(s *testStore) { s.do("del", "rl"); s.do("hset", "rl", "name", "ann") }, "rate is missing"},
		"hash of a type":    {func(s *testStore) { s.do("del", "rl"); s.do("set", "rl", "x") }, ": config: WRONGTYPE"},
		"value of a type":   {func(s *testStore) { s.do("del", "{rl}:value"); s.do("lpush", "{rl}:value", "x") }, ": value: WRONGTYPE"},
		"value no number":   {func(s *testStore) { s.do("set", "{rl}:value", "x") }, ": value: is no whole number"},
		"permits of a type": {func(s *testStore) { s.do("del", "{rl}:permits"); s.do("hset", "{rl}:permits", "rate", 1) }, ": permits: WRONGTYPE"},
		"older beside":      {also(limiter.RedissonFloat), "3.17 and later and 3.13.3 to 3.16.3 have packed entries"},
		"old beside":        {also(limiter.RedissonLong), "3.16.4 to 3.16.8 have packed entries"},
		"of nobody":         {func(s *testStore) { s.do("zadd", "{rl}:permits", start, "x") }, "an entry of 1 bytes"},
	} {
		for _, size := range []int{2, 200} {
			s.empty()
			s.javas(limiter.RedissonByte, limiter.Rate{Count: 1000, Window: time.Minute}, size)
			c.before(s)
			before := s.state()
			shared, own := named("rl", 0, 5, time.Second), claim(5, time.Second, 1)[0]
			own.Limit.Name = "own"
			var d limiter.Decision
			for _, claims := range [][]limiter.Claim{shared, {shared[0], own}} {
				err := s.store.Take(t.Context(), claims, &d)
				if !errors.Is(err, redisstore.ErrRedisson) || !errors.Is(err, limiter.ErrUnavailable) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "rl") {
					t.Errorf("%s, %d entries: %v, want %q without the name", name, size, err, c.says) // which may have a client's phone number
				}
			}
			if _, err := s.handle("rl").Allow(t.Context(), 1); !errors.Is(err, redisstore.ErrRedisson) {
				t.Errorf("%s: handle: %v", name, err)
			}
			for s.store.Flying() > 0 { // what was taken beside it is given back
				runtime.Gosched()
			}
			s.left([]limiter.Claim{own}, 5)
			if after := s.state(); !strings.HasPrefix(after, before[:strings.Index(before, "weir-test")]) {
				t.Errorf("%s: written\n%s\nbefore\n%s", name, after, before)
			}
			s.allowed([]limiter.Claim{own}, 1)
			if err := s.store.Reset(t.Context(), shared); err != nil {
				t.Errorf("%s: reset: %v", name, err)
			}
			if !s.take(shared).Allowed {
				t.Errorf("%s: refused after reset", name)
			}
		}
	}
}

// However old or young the entries that a clock of Java's has written, waits lie
// within the interval, and end.
func TestRedissonBatch_WaitsForForeignClocks(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for _, ahead := range []time.Duration{-time.Hour, -61 * time.Second, -time.Minute, -time.Second, 0, time.Second, time.Hour} {
		for _, size := range []int{1, 20, 500} {
			s.empty()
			s.do("hset", "rl", "rate", size, "interval", 60_000, "type", 0)
			s.do("set", "{rl}:value", 0)
			for i := range size {
				s.do("zadd", "{rl}:permits", start+ahead.Milliseconds(), isPacked(0, i, 1))
			}
			shared := named("rl", 0, 5, time.Second)
			d := s.take(shared)
			if d.Allowed != (ahead <= -time.Minute) || !d.Allowed && (d.Wait <= 0 || d.Wait > time.Minute) {
				t.Errorf("%d entries %v ahead: %+v", size, ahead, d)
			}
			for tries := 0; !d.Allowed; tries++ {
				if tries == 2 {
					t.Fatalf("%d entries %v ahead: still refused", size, ahead)
				}
				s.advance(d.Wait)
				d = s.take(shared)
			}
		}
	}
}

// A config that a claim has written is gone with its permits.
func TestRedissonBatch_ConfigsEndWithTheirPermits(t *testing.T) {
	for _, f := range []limiter.RedissonFormat{limiter.RedissonByte, limiter.RedissonWindow} {
		s := newTestStore(t)
		s.allowed(named("rl", f, 5, time.Minute), 1)
		for _, key := range []string{"rl", "{rl}:value"} {
			if ttl := s.client.PTTL(t.Context(), key).Val(); ttl <= 50*time.Second || ttl > time.Minute {
				t.Errorf("%v: %s lives for %v, want the window", f, key, ttl)
			}
		}
	}
}
