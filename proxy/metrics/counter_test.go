package metrics

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Each Inc counts once, also while a counter becomes busy, and a busy counter does not count for another one.
func TestCounter_CountsEachOnce(t *testing.T) {
	for _, stripes := range []int{1, 2, 5} {
		v := NewCounters(stripes, "a_total", "help", "route", "code")
		const each, series, goroutines = 3 * busyAfter, 20, 4
		var counters [series]*Counter
		for s := range counters {
			counters[s] = v.WithLabelValues("a", strings.Repeat("b", s))
		}
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				for n := range each {
					for s := 1; s < series; s++ {
						if n%s == 0 { // different numbers for different series
							counters[s].Inc(i % stripes)
						}
					}
				}
			})
		}
		all.Wait()
		for s := 1; s < series; s++ {
			want := uint64(goroutines * ((each + s - 1) / s))
			c := v.WithLabelValues("a", strings.Repeat("b", s))
			if got := c.Value(); got != want {
				t.Errorf("%d stripes: series %d has %d; want %d", stripes, s, got, want)
			}
			if busy := c.busy.Load() != nil; busy != (stripes > 1 && want >= busyAfter) {
				t.Errorf("%d stripes: series %d is busy: %v", stripes, s, busy)
			}
		}
	}
}

// A scrape sees what client_golang would show.
func TestCounters_Collect(t *testing.T) {
	v := NewCounters(2, "a_total", "What is counted.", "route", "code")
	v.WithLabelValues("a", "200").Inc(0)
	v.WithLabelValues("a", "200").Inc(1)
	v.WithLabelValues("b", "say \"no\"").Inc(0)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(v)
	want := `# HELP weir_a_total What is counted.
# TYPE weir_a_total counter
weir_a_total{code="200",route="a"} 2
weir_a_total{code="say \"no\"",route="b"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(v.WithLabelValues("a", "200")); got != 2 {
		t.Errorf("%v; want 2", got)
	}
}
