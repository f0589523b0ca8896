package proxy

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// nativeSchema is the resolution of native histograms: 2^3 buckets for each doubling,
	// so that a quantile is off by 9% at most.
	nativeSchema = 3
	// nativeFrom and nativeTo are the powers of two between which there are native
	// buckets, in seconds: from a microsecond to seventeen minutes. What is less is in
	// the zero bucket, what is more in the last one.
	nativeFrom, nativeTo = -20, 10
	// exemplarInterval is how often a bucket gets a new exemplar, which costs allocations.
	exemplarInterval = 10 * time.Second
)

// classicBounds are the upper bounds of the classic buckets, in seconds: from what Weir
// itself takes of a request to what only an upstream does.
func classicBounds() []float64 {
	return []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

// A histogramVec is a histogram of durations for each value of one label, with classic
// buckets and native ones (sparse, exponential) beside. An observation is two atomic
// additions for both kinds: client_golang's own histogram takes more than twice as
// long for that, and every request is observed several times.
type histogramVec struct {
	desc  *prometheus.Desc
	label string
	cells *histogramCells

	mu     sync.Mutex // guards what follows
	series map[string]*histogram
}

// histogramCells are the smallest parts into which the bounds of both kinds of buckets
// cut time. Cell i holds what is greater than bounds[i-1] and not greater than bounds[i].
// They never change.
type histogramCells struct {
	bounds  []float64
	nanos   []int64     // bounds, rounded down: a Duration is not greater than one if it is not greater than the other
	first   [256]uint16 // by slot: the first cell that a Duration of that slot can lie in
	classic []int       // the classic bucket that a cell is part of
	native  []int       // the native one; 0 is the zero bucket
}

// A histogram is one series. Its methods are safe for concurrent use.
type histogram struct {
	label     *dto.LabelPair
	cells     *histogramCells
	counts    []atomic.Uint64 // of each cell
	nanos     atomic.Int64    // all together
	exemplars []exemplarSlot  // of each classic bucket
}

// An exemplarSlot is the exemplar of one bucket: a request that was observed in it.
type exemplarSlot struct {
	set atomic.Int64 // when, in nanoseconds since 1970
	is  atomic.Pointer[dto.Exemplar]
}

func newHistogramVec(name, help, label string) *histogramVec {
	return &histogramVec{
		desc: prometheus.NewDesc("weir_"+name, help, []string{label}, nil), label: label, cells: newHistogramCells(), series: map[string]*histogram{},
	}
}

func newHistogramCells() *histogramCells {
	classic, native := classicBounds(), nativeBounds()
	all := slices.Concat(classic, native)
	slices.Sort(all)
	c := &histogramCells{bounds: slices.Compact(all)}
	for i := range len(c.bounds) + 1 {
		bound := math.Inf(1)
		if i < len(c.bounds) {
			bound = c.bounds[i]
		}
		in, _ := slices.BinarySearch(classic, bound)
		c.classic = append(c.classic, in)
		in, _ = slices.BinarySearch(native, bound)
		c.native = append(c.native, min(in, len(native)-1))
	}
	for _, bound := range c.bounds {
		c.nanos = append(c.nanos, wholeNanos(bound))
	}
	for n := range c.first {
		shift, top := n/4-3, int64(4+n%4)
		least := top >> max(-shift, 0) << max(shift, 0)
		first, _ := slices.BinarySearch(c.nanos, least)
		c.first[n] = uint16(first)
	}
	return c
}

// slot is 4 for each bit that d has, and the two bits behind the first: durations of one
// slot lie in very few cells. That of a longer d is not less.
func slot(d time.Duration) int {
	n := bits.Len64(uint64(d))
	return n*4 + int(uint64(d)<<(64-n)>>61&3)
}

// wholeNanos is the longest Duration of not more than so many seconds.
func wholeNanos(seconds float64) int64 {
	n := time.Duration(seconds * 1e9)
	for ; (n + 1).Seconds() <= seconds; n++ {
	}
	for ; n.Seconds() > seconds; n-- {
	}
	return int64(n)
}

// cell is the one that d lies in, which must not be negative: a few steps from the first
// one for durations that have as many bits.
func (c *histogramCells) cell(d time.Duration) int {
	i := int(c.first[slot(d)])
	for i < len(c.nanos) && c.nanos[i] < int64(d) {
		i++
	}
	return i
}

// nativeBounds are the upper bounds of the zero bucket and of the native ones.
func nativeBounds() []float64 {
	var bounds []float64
	for i := nativeFrom << nativeSchema; i <= nativeTo<<nativeSchema; i++ {
		bounds = append(bounds, math.Exp2(float64(i)/(1<<nativeSchema)))
	}
	return bounds
}

// of is the series with this value of the label, which is there from then on.
func (v *histogramVec) of(value string) *histogram {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.series[value]
	if h == nil {
		h = &histogram{
			label: &dto.LabelPair{Name: &v.label, Value: &value}, cells: v.cells,
			counts: make([]atomic.Uint64, len(v.cells.bounds)+1), exemplars: make([]exemplarSlot, len(classicBounds())+1),
		}
		v.series[value] = h
	}
	return h
}

// observe counts d and returns the classic bucket that it lies in.
func (h *histogram) observe(d time.Duration) (bucket int) {
	d = max(d, 0) // a clock may be set back
	cell := h.cells.cell(d)
	h.counts[cell].Add(1)
	h.nanos.Add(int64(d))
	return h.cells.classic[cell]
}

// due reports whether it is time for another exemplar of a bucket, at so many nanoseconds
// since 1970. Of two that ask at
// once both may be told so.
func (h *histogram) due(bucket int, at int64) bool {
	set := &h.exemplars[bucket].set
	last := set.Load()
	if at-last < int64(exemplarInterval) && at >= last {
		return false
	}
	set.Store(at)
	return true
}
