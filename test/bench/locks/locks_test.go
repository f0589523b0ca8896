// Package locks measures package lock beside two others that Go programs use,
// in one run and on one server. It is a module of its own, so that nobody who
// builds Weir needs them.
//
//	go test -bench . -benchtime 2s
package locks

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
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
func contenders() map[string]func(b *testing.B, addr string) contender {
	return map[string]func(b *testing.B, addr string) contender{
		"weir-reentrant": func(b *testing.B, addr string) contender {
			return weir(locker(b, addr).Reentrant("weir"))
		},
		"weir-simple": func(b *testing.B, addr string) contender {
			return weir(locker(b, addr).Simple("weir-simple"))
		},
		"redsync": func(b *testing.B, addr string) contender {
			rs := redsync.New(goredis.NewPool(client(b, addr)))
			return func(ctx context.Context) (func() error, error) {
				m := rs.NewMutex("redsync", redsync.WithExpiry(30*time.Second), redsync.WithTries(1<<30), redsync.WithRetryDelay(50*time.Millisecond))
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return func() error { _, err := m.UnlockContext(ctx); return err }, nil
			}
		},
		"redislock": func(b *testing.B, addr string) contender {
			c := redislock.New(client(b, addr))
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

func locker(b *testing.B, addr string) *lock.Locker {
	l := lock.New(client(b, addr), lock.WithPoll(10*time.Second))
	b.Cleanup(l.Close)
	return l
}

// each runs a benchmark for every library on a server of its own.
func each(b *testing.B, run func(b *testing.B, addr string, join func() contender)) {
	names := contenders()
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		b.Run(name, func(b *testing.B) {
			s := redistest.Start(b)
			run(b, s.Addr, func() contender { return names[name](b, s.Addr) })
		})
	}
}

// commands is how many commands the server has run that a lock needs, and how
// many µs they took.
func commands(b *testing.B, rdb *redis.Client) (calls, usec float64) {
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_set":
			n, rest, _ := strings.Cut(rest, ",usec=")
			u, _, _ := strings.Cut(rest, ",")
			c, err1 := strconv.ParseFloat(n, 64)
			d, err2 := strconv.ParseFloat(u, 64)
			if err := errors.Join(err1, err2); err != nil {
				b.Fatal(err)
			}
			calls, usec = calls+c, usec+d
		}
	}
	return calls, usec
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkFree is a lock and an unlock that nobody else wants.
func BenchmarkFree(b *testing.B) {
	each(b, func(b *testing.B, addr string, join func() contender) {
		take, rdb, ctx := join(), client(b, addr), context.Background()
		_, before := commands(b, rdb)
		b.ReportAllocs()
		for b.Loop() {
			unlock, err := take(ctx)
			if err != nil {
				b.Fatal(err)
			}
			must(b, unlock())
		}
		_, after := commands(b, rdb)
		b.ReportMetric((after-before)/float64(b.N), "redis-µs/op")
	})
}

// BenchmarkHandOver is the time from an unlock until a waiter in another process
// holds the lock.
func BenchmarkHandOver(b *testing.B) {
	each(b, func(b *testing.B, addr string, join func() contender) {
		one, two, ctx := join(), join(), context.Background()
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
	each(b, func(b *testing.B, addr string, join func() contender) {
		take, rdb, ctx := join(), client(b, addr), context.Background()
		before, _ := commands(b, rdb)
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
		after, _ := commands(b, rdb)
		b.ReportMetric((after-before)/float64(b.N)/100, "calls/turn")
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/turn")
		b.ReportMetric(0, "ns/op")
	})
}
