package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

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
	t.Cleanup(func() { s.store.Close() })
	limitertest.Run(t, func(t *testing.T) limitertest.Subject {
		s.t = t
		s.empty()
		return limitertest.Subject{
			Store: s.store, Advance: s.advance,
			Steps: 20, Schedules: rounds.Of(5), ConcurrentKeys: 40, Calls: rounds.Of(750),
			BucketState: func(c limiter.Claim) (int64, int64, error) {
				if rand.IntN(5) > 0 { // it takes longer than a grant, and what is wrong stays so
					return c.Limit.Rate.Count, 0, nil
				}
				return kept(s.client, c)
			},
		}
	})
}

// connect makes a client that ends with the test.
func connect(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	return clientOf(t, redisstore.ClientConfig{Addrs: []string{addr}})
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

// A redissonCall store lets each token bucket be a limiter of Redisson's, whose config
// it changes as soon as a claim has another rate.
type redissonCall struct {
	*redisstore.Store
	form limiter.RedissonFormat

	mu    sync.Mutex // guards what follows
	rates map[string]limiter.Rate
}

func (s *redissonCall) shared(ctx context.Context, claims []limiter.Claim, edit bool) []limiter.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]limiter.Claim, len(claims))
	for i, c := range claims {
		c.RedissonName, c.RedissonFormat = c.Limit.Name+":"+c.Key.String(), s.form
		out[i] = c
		if had, ok := s.rates[c.RedissonName]; edit && (!ok || had != c.Limit.Rate) {
			if r, err := s.RateLimiter(c.RedissonName, ""); err == nil {
				_, _ = r.WithFormat(s.form).UpdateRate(ctx, redisstore.RateConfig{Rate: c.Limit.Rate, KeepAlive: c.Limit.Rate.Window})
			}
			s.rates[c.RedissonName] = c.Limit.Rate
		}
	}
	return out
}

func (s *redissonCall) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	return s.Store.Take(ctx, s.shared(ctx, claims, true), d)
}

func (s *redissonCall) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.Store.Peek(ctx, s.shared(ctx, claims, true), d)
}

func (s *redissonCall) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.Store.Refund(ctx, s.shared(ctx, claims, false), p)
}

// In each packing a shared limiter promises what our own do.
func TestRedissonBatch_KeepsTheContractOnRedis(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for _, f := range []limiter.RedissonFormat{limiter.RedissonByte, limiter.RedissonFloat} {
		t.Run(f.String(), func(t *testing.T) {
			limitertest.RunTokenBucket(t, func(t *testing.T) limitertest.Subject {
				s.t = t
				return s.redissonSubject(f)
			})
		})
	}
}

// redissonSubject is s, empty, with limiters of Redisson's.
func (s *testStore) redissonSubject(f limiter.RedissonFormat) limitertest.Subject {
	s.empty()
	return limitertest.Subject{
		Store:   &redissonCall{Store: s.store, form: f, rates: map[string]limiter.Rate{}},
		Advance: s.advance, Steps: 25, Schedules: rounds.Of(4), ConcurrentKeys: 40, Calls: rounds.Of(400),
	}
}
