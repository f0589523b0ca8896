// Package limits measures a decision in memory beside two others that Go programs
// use, in one run. It is a module of its own, so that nobody who builds Weir needs
// them.
//
//	go test -bench . -count 5
//
// What is compared is not the same: x/time/rate and go-limiter refill evenly or by
// whole intervals and so let up to twice the rate through in one window; Weir's
// token bucket never more than the rate. Weir alone decides over several limits in
// one step and can give back; the others are asked limit after limit.
package limits

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weir-proxy/weir/limiter"
)

// plenty is a rate that nobody exceeds here, and window how long it counts.
const (
	plenty = 1_000_000_000
	window = time.Minute
)

// An asker takes one permit of each limit under the key of that number, and reports
// whether it was granted. Each goroutine has one of its own.
type asker func(key int) bool

// A library makes askers that share counts of so many limits over so many keys.
type library struct {
	name string
	open func(b *testing.B, limits, keys int) func() asker
}

// libraries are those that are compared. Weir's algorithms stand for themselves.
func libraries() []library {
	return []library{
		{"weir-token_bucket", weir(limiter.TokenBucket)},
		{"weir-gcra", weir(limiter.GCRA)},
		{"weir-fixed_window", weir(limiter.FixedWindow)},
		{"x-time-rate", timeRate},
		{"go-limiter", goLimiter},
	}
}

func weir(a limiter.Algorithm) func(b *testing.B, limits, keys int) func() asker {
	return func(b *testing.B, limits, keys int) func() asker {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		all := make([]limiter.Key, keys)
		for i := range all {
			all[i] = limiter.KeyOf(strconv.Itoa(i))
		}
		return func() asker {
			claims := make([]limiter.Claim, limits)
			for i := range claims {
				rate := limiter.Rate{Count: plenty, Window: window}
				claims[i] = limiter.Claim{Limit: &limiter.Limit{Name: "l" + strconv.Itoa(i), Rate: rate, Algorithm: a}, Cost: 1}
			}
			var d limiter.Decision
			ctx := context.Background()
			return func(key int) bool {
				for i := range claims {
					claims[i].Key = all[key]
				}
				if err := store.Take(ctx, claims, &d); err != nil {
					b.Error(err)
				}
				return d.Allowed
			}
		}
	}
}

// timeRate is one x/time/rate limiter for each key and limit, in a map under a
// lock, as its users write it. Nothing ever leaves the map.
func timeRate(_ *testing.B, limits, keys int) func() asker {
	type id struct{ limit, key int }
	var mu sync.RWMutex
	all := make(map[id]*rate.Limiter, limits*keys)
	of := func(i id) *rate.Limiter {
		mu.RLock()
		l := all[i]
		mu.RUnlock()
		if l != nil {
			return l
		}
		mu.Lock()
		defer mu.Unlock()
		if l = all[i]; l == nil {
			l = rate.NewLimiter(rate.Limit(plenty/window.Seconds()), plenty)
			all[i] = l
		}
		return l
	}
	return func() asker {
		return func(key int) bool {
			for i := range limits {
				if !of(id{i, key}).Allow() {
					return false
				}
			}
			return true
		}
	}
}

// goLimiter is one store of go-limiter for each limit.
func goLimiter(b *testing.B, limits, keys int) func() asker {
	names := make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	ctx := context.Background()
	take := make([]func(key string) bool, limits)
	for i := range take {
		store, err := memorystore.New(&memorystore.Config{Tokens: plenty, Interval: window})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := store.Close(ctx); err != nil {
				b.Error(err)
			}
		})
		take[i] = func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			if err != nil {
				b.Error(err)
			}
			return ok
		}
	}
	return func() asker {
		return func(key int) bool {
			for _, one := range take {
				if !one(names[key]) {
					return false
				}
			}
			return true
		}
	}
}

// each runs a benchmark for every library, over one hot key and over 10,000, all of
// which are known before it is measured.
func each(b *testing.B, limits int, run func(b *testing.B, join func() asker, keys int)) {
	for _, keys := range []int{1, 10_000} {
		for _, l := range libraries() {
			b.Run("keys="+strconv.Itoa(keys)+"/"+l.name, func(b *testing.B) {
				join := l.open(b, limits, keys)
				ask := join()
				for key := range keys {
					ask(key)
				}
				b.ReportAllocs()
				run(b, join, keys)
			})
		}
	}
}

// alone asks from one goroutine.
func alone(b *testing.B, join func() asker, keys int) {
	ask := join()
	for i := 0; b.Loop(); i++ {
		if !ask(i % keys) {
			b.Fatal("refused")
		}
	}
}

// BenchmarkOneLimit is an allowed decision over one limit.
func BenchmarkOneLimit(b *testing.B) { each(b, 1, alone) }

// BenchmarkThreeLimits is an allowed decision over three limits of one key.
func BenchmarkThreeLimits(b *testing.B) { each(b, 3, alone) }

// BenchmarkParallel is an allowed decision over one limit by all processors at
// once.
func BenchmarkParallel(b *testing.B) {
	each(b, 1, func(b *testing.B, join func() asker, keys int) {
		var joined atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			ask := join()
			for i := int(joined.Add(7919)); pb.Next(); i++ {
				if !ask(i % keys) {
					b.Error("refused")
					return
				}
			}
		})
	})
}
