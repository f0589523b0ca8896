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
// plain path and the one that gathers take turns of an eighth of a second, so that a
// machine that is busy with other things is so for both; a round is four turns of
// each, and what is printed are medians of the rounds. -benchtime 20x makes 20.
func BenchmarkOpenLoop(b *testing.B) {
	for _, perSecond := range []int{200, 1000, 5000} {
		b.Run(fmt.Sprintf("arrivals=%d", perSecond), func(b *testing.B) {
			s := newTestStore(b)
			paths := map[string]decider{"plain": s.store.TakePlain, "together": s.store.Take}
			names := []string{"plain", "together"}
			for _, name := range names { // connections, and the scripts
				openLoop(b, paths[name], perSecond)
			}
			p50, p99 := map[string][]time.Duration{}, map[string][]time.Duration{}
			for b.Loop() {
				took := map[string][]time.Duration{}
				for turn := range 8 {
					name := names[turn%2]
					took[name] = append(took[name], openLoop(b, paths[name], perSecond)...)
				}
				for name, all := range took {
					slices.Sort(all)
					p50[name] = append(p50[name], all[len(all)/2])
					p99[name] = append(p99[name], all[len(all)*99/100])
				}
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

// openLoop lets requests over 10,000 keys come for an eighth of a second and returns
// how long each took.
func openLoop(b *testing.B, take decider, perSecond int) []time.Duration {
	l := &limiter.Limit{Name: "open", Rate: limiter.Rate{Count: 100, Window: time.Second}}
	took := make([]time.Duration, perSecond/8)
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
	return took
}
