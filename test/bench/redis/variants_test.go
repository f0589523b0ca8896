package redis

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

var (
	//go:embed floor.lua
	floorLua string
	//go:embed bare.lua
	bareLua string
	//go:embed bare_uses.lua
	bareUsesLua string
	//go:embed redisson.lua
	redissonLua string
)

// A variant is one way to decide.
type variant struct {
	name string
	// call makes the script call of so many requests under the rates; nil if this
	// variant cannot do that.
	call func(b *testing.B, s *stage, rates []limiter.Rate, size int) *template
	// prepare writes what must be there before a key's first decision.
	prepare func(s *stage, rates []limiter.Rate, keys []string)
	alone   bool // one request a call, whatever is asked for
}

func variants() []variant {
	return []variant{
		{name: "floor", call: counts},
		{name: "bare", call: bares},
		{name: "bare_uses", call: bareUses},
		{name: "token_bucket", call: ours(limiter.TokenBucket)},
		{name: "sliding_log", call: ours(limiter.SlidingLog)},
		{name: "gcra", call: ours(limiter.GCRA)},
		{name: "fixed_window", call: ours(limiter.FixedWindow)},
		{name: "sliding_window", call: ours(limiter.SlidingWindow)},
		{name: "cooldown", call: ours(limiter.Cooldown)},
		{name: "concurrent", call: ours(limiter.Concurrent)},
		{name: "distinct", call: ours(limiter.Distinct)},
		{name: "conversion", call: ours(limiter.Conversion)},
		{name: "redis_rate", call: redisRate, alone: true},
		{name: "redisson", call: redissons, prepare: redissonConfig, alone: true},
	}
}

// keyText is what one key is called: as long as limiter.Key.String.
func keyText(n int) string { return fmt.Sprintf("%032x", n+1) }

func keyOf(n int) (k limiter.Key) {
	binary.BigEndian.PutUint64(k[8:], uint64(n+1))
	return k
}

// convert sets what a limit of the algorithm conversion needs.
func convert(l *limiter.Limit) {
	if l.Algorithm.HasConversion() {
		l.Noted, l.Conversion = true, 35
	}
}

// claimOn is a claim of one permit. A conversion has no subject: what notes cost is the same for all algorithms.
func claimOn(l *limiter.Limit, n int) limiter.Claim {
	c := limiter.Claim{Limit: l, Key: keyOf(n), Cost: 1}
	if l.Algorithm.HasValues() {
		c.Value = valueOf(n)
	}
	return c
}

// valueOf is what distinct limits count; others take no notice of it.
func valueOf(n int) limiter.Key { return limiter.KeyOf("value", fmt.Sprint(n)) }

func newID() string {
	var id [8]byte
	binary.LittleEndian.PutUint64(id[:], rand.Uint64())
	return string(id[:])
}

// ours records what a Store sends when so many requests come at once.
func ours(a limiter.Algorithm) func(*testing.B, *stage, []limiter.Rate, int) *template {
	return func(b *testing.B, s *stage, rates []limiter.Rate, size int) *template {
		r := record(b, s.addr)
		client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{r.addr}, Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		store := redisstore.New(client, redisstore.Options{MaxInFlight: 1, CachedRefusals: -1, Timeout: time.Minute, Prefix: prefix(a)})
		defer store.Close()
		limits := make([]*limiter.Limit, len(rates))
		for i, rate := range rates {
			limits[i] = &limiter.Limit{Name: fmt.Sprintf("send.phone:%s", limiter.WindowName(rate.Window)), Rate: rate, Algorithm: a}
			convert(limits[i])
			if a == limiter.Cooldown {
				// It grants, as the others do: rates of one a window are those of which it refuses the second.
				limits[i].Rate, limits[i].Steps = limiter.Rate{Count: 1, Window: rate.Window}, []time.Duration{time.Millisecond}
				if rate.Count == 1 {
					limits[i].Steps[0] = rate.Window
				}
			}
		}
		take := func(n int) limiter.Decision {
			var d limiter.Decision
			claims := make([]limiter.Claim, len(limits))
			for i, l := range limits {
				claims[i] = claimOn(l, n)
			}
			if err := store.Take(context.Background(), claims, &d); err != nil {
				b.Error(err)
			}
			return d
		}
		if a == limiter.Distinct && rates[0].Count > limiter.MaxDistinct {
			return nil
		}
		take(1 << 20) // now Redis knows the script
		keys, ids := make([]string, size), make([]string, 2*size)
		var wg sync.WaitGroup
		one := func(i int) {
			d := take(1<<21 + i)
			keys[i] = keyText(1<<21 + i)
			v := valueOf(1<<21 + i)
			ids[2*i], ids[2*i+1] = string(d.Permit.ID[:8]), string(v[:8])
		}
		if size == 1 {
			one(0)
			return s.checked(newTemplate(r.last(), keys, ids), len(rates))
		}
		release := r.hold()
		wg.Go(func() { take(1<<20 + 1) })
		r.waitUntilHeld()
		for i := range size {
			wg.Go(func() { one(i) })
		}
		r.waitUntilGathered(1 + size)
		release()
		wg.Wait()
		return s.checked(newTemplate(r.last(), keys, ids), len(rates))
	}
}

// prefix is of the same length for all, and tells them apart.
func prefix(a limiter.Algorithm) string { return fmt.Sprintf("t%03d", a) }

// hot is the same call with one key for all: what is sent differs only in keys, and
// a store sends a key once. So the call is recorded anew.
func hot(a limiter.Algorithm, rate limiter.Rate, size int) func(*testing.B, *stage) *template {
	return func(b *testing.B, s *stage) *template {
		r := record(b, s.addr)
		client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{r.addr}, Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		store := redisstore.New(client, redisstore.Options{MaxInFlight: 1, CachedRefusals: -1, Timeout: time.Minute, Prefix: prefix(a)})
		defer store.Close()
		l := &limiter.Limit{Name: "hot", Rate: rate, Algorithm: a}
		convert(l)
		var mu sync.Mutex
		var ids []string
		take := func(n int) {
			var d limiter.Decision
			if err := store.Take(context.Background(), []limiter.Claim{claimOn(l, n)}, &d); err != nil {
				b.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n == 1<<21 {
				ids = append(ids, string(d.Permit.ID[:8]))
			}
		}
		take(1 << 20)
		release := r.hold()
		var wg sync.WaitGroup
		wg.Go(func() { take(1<<20 + 1) })
		r.waitUntilHeld()
		for range size {
			wg.Go(func() { take(1 << 21) })
		}
		r.waitUntilGathered(1 + size)
		release()
		wg.Wait()
		t := newTemplate(r.last(), []string{keyText(1 << 21)}, ids)
		t.decided = size
		return s.checked(t, 1)
	}
}

// counts makes calls of floor.lua, one for each limit.
func counts(_ *testing.B, s *stage, rates []limiter.Rate, size int) *template {
	hash, keys := s.load(floorLua), make([]string, size)
	var raw []byte
	for _, rate := range rates {
		words := []string{"evalsha", hash, fmt.Sprint(size)}
		for i := range keys {
			keys[i] = keyText(1<<21 + i)
			words = append(words, plainName("flor", keys[i], rate)+":value")
		}
		raw = append(raw, encode(append(words, fmt.Sprint(rate.Count), fmt.Sprint(rate.Window.Milliseconds()))...)...)
	}
	return newTemplate(raw, keys, nil)
}

// bares makes calls of bare.lua, one for all limits.
func bares(_ *testing.B, s *stage, rates []limiter.Rate, size int) *template {
	entry := func(id string) string { return "\x08" + id + "\x01\x00\x00\x00" }
	return bareCall(s.load(bareLua), rates, size, entry, ":value", ":permits")
}

// bareUses makes calls of bare_uses.lua, one for all limits.
func bareUses(_ *testing.B, s *stage, rates []limiter.Rate, size int) *template {
	return bareCall(s.load(bareUsesLua), rates, size, func(id string) string { return id + "an-id---" }, ":{distinct}:permits")
}

// bareCall is a call of the script of that hash, over keys with these ends; entry is what
// is written of an id.
func bareCall(hash string, rates []limiter.Rate, size int, entry func(id string) string, ends ...string) *template {
	keys, ids := make([]string, size), make([]string, size)
	words := []string{"evalsha", hash, fmt.Sprint(len(ends) * size * len(rates))}
	requests := ""
	for i := range keys {
		keys[i], ids[i] = keyText(1<<21+i), newID()
		requests += entry(ids[i])
		for _, rate := range rates {
			for _, end := range ends {
				words = append(words, plainName("bare", keys[i], rate)+end)
			}
		}
	}
	for _, rate := range rates {
		words = append(words, fmt.Sprint(rate.Count), fmt.Sprint(rate.Window.Milliseconds()))
	}
	return newTemplate(encode(append(words, requests)...), keys, ids)
}

// plainName is as long as the names of ours.
func plainName(prefix, key string, rate limiter.Rate) string {
	return prefix + ":{" + key + "}:send.phone:" + limiter.WindowName(rate.Window)
}

// redisRate records what redis_rate sends; it decides one request a call.
func redisRate(b *testing.B, s *stage, rates []limiter.Rate, _ int) *template {
	r := record(b, s.addr)
	client := redis.NewClient(&redis.Options{Addr: r.addr})
	defer client.Close()
	l := redis_rate.NewLimiter(client)
	var raw []byte
	for i, rate := range rates {
		limit := redis_rate.Limit{Rate: int(rate.Count), Burst: int(rate.Count), Period: rate.Window}
		for range 2 {
			if _, err := l.Allow(b.Context(), fmt.Sprint(keyText(1<<21), nth(i)), limit); err != nil {
				b.Fatal(err)
			}
		}
		raw = append(raw, r.last()...)
	}
	return newTemplate(raw, []string{keyText(1 << 21)}, nil)
}

// redissons is one decision of a Redisson limiter: the commands that its script
// runs, on keys of its layout.
func redissons(_ *testing.B, s *stage, rates []limiter.Rate, _ int) *template {
	hash, k, id := s.load(redissonLua), keyText(1<<21), newID()+newID()
	var raw []byte
	for i := range rates {
		words := append([]string{"evalsha", hash, "5"}, redissonKeys(k, i)...)
		raw = append(raw, encode(append(words, "1", "@@@@@@@@@@@@@", id)...)...)
	}
	return newTemplate(raw, []string{k}, []string{id[:8]})
}

// nth ends the name of a key's i-th limit.
func nth(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprint(i)
}

func redissonKeys(k string, i int) []string {
	name := "redisson:{" + k + "}:send" + nth(i)
	return []string{name, name + ":value", name + ":value:00000000-0000-4000-8000-000000000000", name + ":permits", name + ":permits:00000000-0000-4000-8000-000000000000"}
}

func redissonConfig(s *stage, rates []limiter.Rate, keys []string) {
	var out []byte
	for _, k := range keys {
		for i, rate := range rates {
			out = append(out, encode("hset", redissonKeys(k, i)[0], "rate", fmt.Sprint(rate.Count), "interval", fmt.Sprint(rate.Window.Milliseconds()), "type", "0")...)
		}
	}
	s.send(out)
}
