package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A decider is Store.Take or the plain path: one script call for each decision.
type decider func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error

// BenchmarkOpenLoop is a store that requests come to at fixed times, whether or not
// those before are answered; latency counts from when a request was to come. The
// plain path and the one that gathers take turns in one run, half a second each;
// what is printed are medians of the rounds. -benchtime 20x makes 20 rounds.
func BenchmarkOpenLoop(b *testing.B) {
	for _, perSecond := range []int{200, 1000, 5000} {
		b.Run(fmt.Sprintf("arrivals=%d", perSecond), func(b *testing.B) {
			s := newScene(b)
			paths := map[string]decider{"plain": s.store.TakePlain, "together": s.store.Take}
			order := []string{"plain", "together"}
			openLoop(b, paths["plain"], perSecond) // connections, and the scripts
			openLoop(b, paths["together"], perSecond)
			p50, p99 := map[string][]time.Duration{}, map[string][]time.Duration{}
			for b.Loop() {
				for _, name := range order {
					all := openLoop(b, paths[name], perSecond)
					p50[name] = append(p50[name], all[len(all)/2])
					p99[name] = append(p99[name], all[len(all)*99/100])
				}
				slices.Reverse(order)
			}
			for name := range paths {
				b.ReportMetric(micros(p50[name]), name+"-p50-µs")
				b.ReportMetric(micros(p99[name]), name+"-p99-µs")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// micros is the median.
func micros(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}

// openLoop lets requests over 10,000 keys come for half a second and returns how
// long each took, sorted.
func openLoop(b *testing.B, take decider, perSecond int) []time.Duration {
	l := &limiter.Limit{Name: "open", Rate: limiter.Rate{Count: 100, Window: time.Second}}
	took := make([]time.Duration, perSecond/2)
	begin := time.Now().Add(10 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range took {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if wait := time.Until(due); wait > 0 {
			<-time.After(wait)
		}
		wg.Go(func() {
			var d limiter.Decision
			claims := []limiter.Claim{{Limit: l, Key: limiter.KeyOf(strconv.Itoa(i * 7919 % 10_000)), Cost: 1}}
			if err := take(b.Context(), claims, &d); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}
