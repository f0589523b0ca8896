package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/rounds"
)

// patient is for a machine that is busy with other tests.
const patient = 30 * time.Second

func TestStore_KeepsTheContractOnRedis(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	s.store = redisstore.NewOnMovingSlots(s.client, redisstore.Options{Timeout: patient})
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		s.t = t
		s.empty()
		return limitertest.Subject{
			Store: s.store, Advance: s.advance,
			Steps: 25, Schedules: rounds.Of(10), ConcurrentKeys: 40, Calls: rounds.Of(1500),
			BucketState: func(c limiter.Claim) (int64, int64, error) { return kept(s.client, c) },
		}
	})
}

// miniredis has a clock of its own that a test can set: the scripts run as they
// are, with TIME; only struct, which it lacks, is written in Lua.
func TestStore_KeepsTheContractOnMiniredis(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	store := redisstore.NewWithoutStruct(connect(t, m.Addr()), redisstore.Options{Timeout: patient, CachedRefusals: -1, MaxInFlight: 1})
	t.Cleanup(func() { store.Close() })
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		m.FlushAll()
		var mu sync.Mutex
		now := time.UnixMilli(1_800_000_000_000)
		m.SetTime(now)
		return slow(limitertest.Subject{
			Calls: rounds.Of(300),
			Store: store,
			Advance: func(d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(d)
				m.SetTime(now)
				if d > 0 {
					m.FastForward(d)
				}
			},
		})
	})
}

// slow has few schedules where a script takes some ms: in a Redis that is written in Go, or without inlining.
func slow(s limitertest.Subject) limitertest.Subject {
	s.Schedules, s.Steps, s.ConcurrentKeys = rounds.Of(4), 8, 5
	return s
}

// connect makes a client that ends with the test.
func connect(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{addr}, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// kept reads one window as it lies in Redis, in one step.
func kept(client redis.UniversalClient, c limiter.Claim) (left, out int64, err error) {
	name := redisstore.WindowName(redisstore.DefaultPrefix, c.Limit.Name, c.Key)
	var value *redis.StringCmd
	var members *redis.StringSliceCmd
	_, err = client.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
		value, members = p.Get(context.Background(), name+":value"), p.ZRange(context.Background(), name+":permits", 0, -1)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return c.Limit.Rate.Count, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for _, m := range members.Val() {
		out += int64(binary.LittleEndian.Uint32([]byte(m[len(m)-4:])))
	}
	left, err = value.Int64()
	return left, out, err
}
