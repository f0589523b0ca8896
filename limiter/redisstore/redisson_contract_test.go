package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

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
	client := connect(t, redistest.Start(t).Addr)
	for _, f := range []limiter.RedissonFormat{limiter.RedissonByte, limiter.RedissonFloat} {
		t.Run(f.String(), func(t *testing.T) {
			limitertest.RunTokenBucket(t, func(t *testing.T) limitertest.Subject {
				client.FlushAll(t.Context())
				client.Set(t.Context(), redisstore.TestClock, int64(start), 0)
				return redissonSubject(t, client, f)
			})
		})
	}
}

func redissonSubject(t *testing.T, client redis.UniversalClient, f limiter.RedissonFormat) limitertest.Subject {
	return limitertest.Subject{
		Store: &redissonCall{
			Store: redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient}),
			form:  f, rates: map[string]limiter.Rate{},
		},
		Advance: func(d time.Duration) {
			if err := client.IncrBy(context.Background(), redisstore.TestClock, d.Milliseconds()).Err(); err != nil {
				t.Errorf("advance: %v", err)
			}
		},
		Steps: 25, Schedules: rounds.Of(15), ConcurrentKeys: 40, Calls: rounds.Of(2000),
	}
}

func TestRedissonBatch_KeepsTheContractOnMiniredis(t *testing.T) {
	t.Parallel()
	limitertest.RunTokenBucket(t, func(t *testing.T) limitertest.Subject {
		client := connect(t, miniredis.RunT(t).Addr())
		client.Set(t.Context(), redisstore.TestClock, int64(start), 0)
		s := redissonSubject(t, client, limiter.RedissonByte)
		s.Calls = rounds.Of(300)
		return slow(s)
	})
}
