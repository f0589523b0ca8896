package limiter_test

import (
	"encoding/binary"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/weir-proxy/weir/limiter"
)

// BenchmarkKeys asks one limit over 10,000 keys, as others are made to: one
// x/time/rate limiter for each key, in a map under a lock.
func BenchmarkKeys(b *testing.B) {
	const keys = 10_000
	all := make([]limiter.Key, keys)
	for i := range all {
		all[i] = numbered(i)
	}
	for name, count := range map[string]int64{"granted": 1_000_000_000, "refused": 1} {
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
			b.Run(name+"/"+a.String(), func(b *testing.B) {
				m := limiter.NewMemory(limiter.MemoryOptions{})
				claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: count, Window: limiter.MaxWindow}, Algorithm: a}, Cost: 1}}
				var d limiter.Decision
				ctx := b.Context()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					claims[0].Key = all[i%keys]
					if err := m.Take(ctx, claims, &d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(name+"/x-time-rate", func(b *testing.B) {
			var mu sync.Mutex
			limiters := map[limiter.Key]*xrate.Limiter{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := all[i%keys]
				mu.Lock()
				l := limiters[k]
				if l == nil {
					l = xrate.NewLimiter(xrate.Limit(float64(count)/limiter.MaxWindow.Seconds()), int(count))
					limiters[k] = l
				}
				mu.Unlock()
				l.Allow()
			}
		})
	}
}

// BenchmarkMirror is the mirror that a process keeps of what another store decides, so
// that it can take over: CPU of noting one granted decision, and bytes of a key that
// was noted once and ten times, by the heap.
func BenchmarkMirror(b *testing.B) {
	const keys = 100_000
	all := make([]limiter.Key, keys)
	for i := range all {
		all[i] = numbered(i)
	}
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA, limiter.FixedWindow} {
		for _, count := range []int64{1, 10} {
			l := &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: count, Window: time.Hour}, Algorithm: a}
			claims := []limiter.Claim{{Limit: l, Cost: 1}}
			d := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true}}}
			b.Run(a.String()+"/"+l.Rate.String(), func(b *testing.B) {
				var bytes, keysNoted, used int64
				rounds := 0
				for b.Loop() {
					b.StopTimer()
					m := limiter.NewMemory(limiter.MemoryOptions{})
					before, began := heap(), cpu(b)
					b.StartTimer()
					for n := range count {
						d.Outcomes[0].Remaining = count - n - 1
						for i := range all {
							claims[0].Key = all[i]
							binary.LittleEndian.PutUint64(d.Permit.ID[:], uint64(n*keys)+uint64(i)+1)
							m.Mirror(claims, &d, 1)
						}
					}
					b.StopTimer()
					used += cpu(b) - began
					bytes += heap() - before
					noted, _ := m.Keys()
					keysNoted += int64(noted)
					rounds++
					b.StartTimer()
				}
				b.ReportMetric(float64(used)/float64(rounds)/float64(keys*count), "cpu-ns/note")
				b.ReportMetric(float64(bytes)/float64(keysNoted), "bytes/key")
			})
		}
	}
}

// cpu is what this process has used, in ns.
func cpu(tb testing.TB) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
