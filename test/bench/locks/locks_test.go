// Package locks measures package lock beside two others that Go programs use,
// in one run and on one server. It is a module of its own, so that nobody who
// builds Weir needs them.
//
//	go test -bench . -benchtime 2s
package locks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/redistest"
)

// A contender takes a lock, waiting for it, and returns how to give it back.
type contender func(ctx context.Context) (unlock func() error, err error)

// contenders are the same lock by each library; each call is another process.
// Those that poll do so every 50 ms: their own defaults are 50 to 250 ms, and
// not to wait at all.
func contenders() map[string]func(b *testing.B, rdb *redis.Client) contender {
	return map[string]func(b *testing.B, rdb *redis.Client) contender{
		"weir-reentrant": func(b *testing.B, rdb *redis.Client) contender {
			return weir(locker(b, rdb).Reentrant("weir"))
		},
		"weir-simple": func(b *testing.B, rdb *redis.Client) contender {
			return weir(locker(b, rdb).Simple("weir-simple"))
		},
		"redsync": func(b *testing.B, rdb *redis.Client) contender {
			rs := redsync.New(goredis.NewPool(rdb))
			return func(ctx context.Context) (func() error, error) {
				m := rs.NewMutex("redsync", redsync.WithExpiry(30*time.Second), redsync.WithTries(1<<30), redsync.WithRetryDelay(50*time.Millisecond))
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return func() error { _, err := m.UnlockContext(ctx); return err }, nil
			}
		},
		"redislock": func(b *testing.B, rdb *redis.Client) contender {
			c := redislock.New(rdb)
			return func(ctx context.Context) (func() error, error) {
				l, err := c.Obtain(ctx, "redislock", 30*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond)})
				if err != nil {
					return nil, err
				}
				return func() error { return l.Release(ctx) }, nil
			}
		},
	}
}

func weir(l *lock.Lock) contender {
	return func(ctx context.Context) (func() error, error) {
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() error { return h.Unlock(ctx) }, nil
	}
}

func client(b *testing.B, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { rdb.Close() })
	return rdb
}

// A counter counts the commands that clients send.
type counter struct{ sent atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.sent.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func locker(b *testing.B, rdb *redis.Client) *lock.Locker {
	l := lock.New(rdb, lock.WithPollInterval(10*time.Second))
	b.Cleanup(l.Close)
	return l
}

// A scene is one library on a server of its own.
type scene struct {
	addr    string
	library string
	sent    counter
}

// join makes another process.
func (s *scene) join(b *testing.B) contender {
	rdb := client(b, s.addr)
	rdb.AddHook(&s.sent)
	return contenders()[s.library](b, rdb)
}

// each runs a benchmark for every library.
func each(b *testing.B, run func(b *testing.B, s *scene)) {
	for _, library := range slices.Sorted(maps.Keys(contenders())) {
		b.Run(library, func(b *testing.B) {
			run(b, &scene{addr: redistest.Start(b).Addr, library: library})
		})
	}
}

// cost is how many µs the server has spent on scripts, and on the SET by which
// redsync takes a lock without one.
func (s *scene) cost(b *testing.B, rdb *redis.Client) float64 {
	took := redistest.Scripts(b, rdb).Took
	if s.library == "redsync" {
		took += redistest.Commands(b, rdb)["set"].Took
	}
	return float64(took.Microseconds())
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkFree is a lock and an unlock that nobody else wants.
func BenchmarkFree(b *testing.B) {
	each(b, func(b *testing.B, s *scene) {
		take, rdb, ctx := s.join(b), client(b, s.addr), context.Background()
		before := s.cost(b, rdb)
		b.ReportAllocs()
		for b.Loop() {
			unlock, err := take(ctx)
			if err != nil {
				b.Fatal(err)
			}
			must(b, unlock())
		}
		b.ReportMetric((s.cost(b, rdb)-before)/float64(b.N), "redis-µs/op")
	})
}

// BenchmarkHandOver is the time from an unlock until a waiter in another process
// holds the lock.
func BenchmarkHandOver(b *testing.B) {
	each(b, func(b *testing.B, s *scene) {
		one, two, ctx := s.join(b), s.join(b), context.Background()
		var took []time.Duration
		for b.Loop() {
			unlock, err := one(ctx)
			if err != nil {
				b.Fatal(err)
			}
			got := beside(ctx, b, two)
			<-time.After(5 * time.Millisecond) // the waiter waits
			at := time.Now()
			must(b, unlock())
			took = append(took, (<-got).Sub(at))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
		b.ReportMetric(0, "ns/op")
	})
}

// beside takes and gives back beside the benchmark, and says when it had it.
func beside(ctx context.Context, b *testing.B, take contender) chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		unlock, err := take(ctx)
		at := time.Now()
		must(b, err)
		if err == nil {
			must(b, unlock())
		}
		got <- at
	}()
	return got
}

// BenchmarkCrowd is one turn of 100 goroutines of one process that all want the
// lock.
func BenchmarkCrowd(b *testing.B) {
	each(b, func(b *testing.B, s *scene) {
		take, ctx := s.join(b), context.Background()
		before := s.sent.sent.Load()
		for b.Loop() {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					unlock, err := take(ctx)
					must(b, err)
					if err == nil {
						must(b, unlock())
					}
				})
			}
			all.Wait()
		}
		b.ReportMetric(float64(s.sent.sent.Load()-before)/float64(b.N)/100, "calls/turn")
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/turn")
		b.ReportMetric(0, "ns/op")
	})
}
