package metrics

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metricOf is what a scrape sees of h.
func metricOf(t *testing.T, v *Histograms, h *Histogram) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := (&histogramMetric{v.desc, h}).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}

// What client_golang makes of the same observations is what we make of them.
func TestHistogram_AsClientGolangCounts(t *testing.T) {
	bounds := classicBounds()
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "a", Buckets: bounds, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: math.Exp2(nativeFrom),
	})
	v := NewHistograms(NewBuckets(1), "a_seconds", "help", "route")
	ours := v.Of("a")
	var seen []time.Duration
	for _, b := range bounds { // exactly the bound, and a nanosecond beside
		d := time.Duration(b * 1e9)
		seen = append(seen, d-1, d, d+1)
	}
	for d := time.Duration(0); d < time.Minute; d = d*5/4 + 100 {
		seen = append(seen, d)
	}
	for _, d := range seen {
		theirs.Observe(d.Seconds())
		ours.Observe(0, d)
	}
	var m dto.Metric
	if err := theirs.Write(&m); err != nil {
		t.Fatal(err)
	}
	want, got := m.GetHistogram(), metricOf(t, v, ours)
	if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6 ||
		got.GetSchema() != want.GetSchema() || got.GetZeroCount() != want.GetZeroCount() || got.GetZeroThreshold() != want.GetZeroThreshold() {
		t.Errorf("%v\nwant %v", got, want)
	}
	for i, b := range want.GetBucket() {
		if g := got.GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %v; want %v", g, b)
		}
	}
	w, g := nativeCounts(want), nativeCounts(got)
	for index, n := range w {
		if g[index] != n {
			t.Errorf("native bucket %d has %d; want %d", index, g[index], n)
		}
	}
	if len(g) != len(w) {
		t.Errorf("%d native buckets; want %d", len(g), len(w))
	}
}

// nativeCounts are the counts of native buckets by their index.
func nativeCounts(h *dto.Histogram) map[int32]int64 {
	counts, index, n, next := map[int32]int64{}, int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[next]
			if n != 0 { // client_golang bridges short gaps by empty ones
				counts[index] = n
			}
			index, next = index+1, next+1
		}
	}
	return counts
}

// What is less than the least and more than the most is in the outermost buckets.
// Every bound and its neighbours, beside a search by seconds.
func TestHistogram_CellsAreFoundByNanoseconds(t *testing.T) {
	c := NewBuckets(1)
	all := []time.Duration{0, 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, at := range c.nanos {
		for step := -3; step <= 3; step++ {
			all = append(all, time.Duration(at)+time.Duration(step))
		}
	}
	for n := range 62 {
		all = append(all, 1<<n, 1<<n-1, 1<<n+1)
	}
	for _, d := range all {
		want, _ := slices.BinarySearch(c.bounds, d.Seconds())
		if got := c.cell(d); got != want {
			t.Errorf("%s is in cell %d; want %d", d, got, want)
		}
	}
}

func TestHistogram_TheEnds(t *testing.T) {
	v := NewHistograms(NewBuckets(1), "a_seconds", "help", "route")
	h := v.Of("a")
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Hour, 1000 * time.Hour} {
		h.Observe(0, d)
	}
	got := metricOf(t, v, h)
	if got.GetZeroCount() != 3 || got.GetBucket()[0].GetCumulativeCount() != 3 || got.GetSampleCount() != 5 {
		t.Errorf("%v", got)
	}
	if n := nativeCounts(got); len(n) != 1 || n[nativeTo<<nativeSchema] != 2 {
		t.Errorf("native buckets %v; want two in the last one", n)
	}
	if empty := metricOf(t, v, v.Of("b")); len(empty.GetPositiveSpan()) != 1 || empty.GetSampleCount() != 0 {
		t.Errorf("%v; want a native histogram without observations", empty)
	}
	if again := v.Of("b"); again != v.Of("b") || again == v.Of("a") {
		t.Error("a series is not one for each label")
	}
}

// All counts of one look fit together, also while more is observed.
func TestHistogram_CountsFitTogether(t *testing.T) {
	v := NewHistograms(NewBuckets(4), "a_seconds", "help", "route")
	h := v.Of("a")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 20_000 {
				h.Observe(i, time.Duration(i*j)*time.Microsecond)
			}
		})
	}
	for range 200 {
		got := metricOf(t, v, h)
		sum := int64(got.GetZeroCount())
		for _, n := range nativeCounts(got) {
			sum += n
		}
		if sum != int64(got.GetSampleCount()) || got.GetBucket()[len(got.GetBucket())-1].GetCumulativeCount() > got.GetSampleCount() {
			t.Fatalf("%d in native buckets, %d in all", sum, got.GetSampleCount())
		}
	}
	all.Wait()
	if got := metricOf(t, v, h); got.GetSampleCount() != 80_000 || math.Abs(got.GetSampleSum()-6*19_999*10_000e-6) > 1e-6 {
		t.Errorf("%d observations of %v s in all, want 80000", got.GetSampleCount(), got.GetSampleSum())
	}
	if h.busy.Load() == nil {
		t.Error("a busy series is not counted in stripes")
	}
}

func BenchmarkHistogram(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		h, n := NewHistograms(NewBuckets(1), "a_seconds", "help", "route").Of("a"), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			h.Observe(0, time.Duration(n%1000)*13*time.Microsecond)
		}
	})
	b.Run("client_golang", func(b *testing.B) {
		h, n := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "a", Buckets: classicBounds(), NativeHistogramBucketFactor: 1.1}), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			h.Observe((time.Duration(n%1000) * 13 * time.Microsecond).Seconds())
		}
	})
}
