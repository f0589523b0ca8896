// Package metrics has histograms of durations that are cheap enough to be updated several times
// by each request, and references to metrics that are looked up by their labels only once. It
// knows no requests.
package metrics

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/proxy/stripe"
)

const (
	// nativeSchema is the resolution of native histograms: 2^3 buckets for each power of two, so
	// that the error of a quantile is at most 9%.
	nativeSchema = 3
	// nativeFrom and nativeTo are the powers of two that bound the native buckets, in seconds: from
	// a microsecond to seventeen minutes. Smaller values are in the zero bucket, larger ones in the
	// last bucket.
	nativeFrom, nativeTo = -20, 10
	// exemplarInterval is the minimum interval between exemplars of a bucket. An exemplar costs
	// allocations.
	exemplarInterval = 10 * time.Second
)

// classicBounds returns the upper bounds of the classic buckets, in seconds. They range from the
// time that Weir itself needs to that of slow upstreams.
func classicBounds() []float64 {
	return []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
		0.5, 1, 2.5, 5, 10}
}

// A Histograms is a histogram of durations for each value of one label, with classic and native
// (sparse, exponential) buckets. An observation is two atomic additions for both kinds.
// client_golang's own histogram takes more than twice as long for that, and each request is
// observed several times.
type Histograms struct {
	desc  *prometheus.Desc
	cells *Buckets

	mu     sync.Mutex // guards what follows
	series map[string]*Histogram
	busy   int // series in stripes
}

// maxBusy is the maximum number of series of a Histograms that are counted in stripes. If more are busy, no
// series is so busy that processors often write it at the same time.
const maxBusy = 64

// Buckets divides durations by the bounds of both kinds of buckets. Cell i holds values
// greater than bounds[i-1] and at most bounds[i]. It is immutable.
type Buckets struct {
	bounds  []float64
	nanos   []int64     // bounds in nanoseconds, rounded down; a Duration compares to both alike
	first   [256]uint16 // by slot: the first cell that a Duration of this slot can be in
	classic []uint8     // the classic bucket of each cell
	native  []int       // the native bucket of each cell; 0 is the zero bucket
	stripes int         // of a busy series
}

// A Histogram is one series. It is safe for concurrent use.
type Histogram struct {
	of        *Histograms
	labels    []*dto.LabelPair
	cells     *Buckets
	first     cellCounts // the counts until the series was busy
	busy      atomic.Pointer[[]cellCounts]
	exemplars []exemplarSlot // by classic bucket
}

// cellCounts are the counts of one stripe, or all of them. Most series use few cells, so that memory for
// them is allocated in blocks.
type cellCounts struct {
	blocks [17]atomic.Pointer[cellBlock]
	nanos  atomic.Int64 // sum of all observations
	_      [2*stripe.LineSize - 18*8]byte
}

// A cellBlock holds the counts of cells that follow each other.
type cellBlock [stripe.LineSize / 8]atomic.Uint64

// add adds an observation in a cell, and returns the count of the cell.
func (c *cellCounts) add(cell int, d time.Duration) uint64 {
	at := &c.blocks[cell/len(cellBlock{})]
	b := at.Load()
	if b == nil {
		at.CompareAndSwap(nil, new(cellBlock))
		b = at.Load()
	}
	c.nanos.Add(int64(d))
	return b[cell%len(cellBlock{})].Add(1)
}

// count returns the count of a cell.
func (c *cellCounts) count(cell int) uint64 {
	if b := c.blocks[cell/len(cellBlock{})].Load(); b != nil {
		return b[cell%len(cellBlock{})].Load()
	}
	return 0
}

// An exemplarSlot holds the exemplar of one bucket: a request that was observed in it.
type exemplarSlot struct {
	set atomic.Int64 // when it was set, in nanoseconds since 1970
	is  atomic.Pointer[dto.Exemplar]
}

// NewHistograms returns a histogram weir_NAME with the given buckets. Histograms that are updated together
// share them, so that a request reads the same memory for each.
func NewHistograms(cells *Buckets, name, help, label string) *Histograms {
	return &Histograms{
		desc: prometheus.NewDesc("weir_"+name, help, []string{label}, nil), cells: cells, series: map[string]*Histogram{},
	}
}

// NewBuckets returns the buckets of all histograms, which are the same. A busy series is counted in so many
// stripes.
func NewBuckets(stripes int) *Buckets {
	classic, native := classicBounds(), nativeBounds()
	all := slices.Concat(classic, native)
	slices.Sort(all)
	c := &Buckets{bounds: slices.Compact(all), stripes: stripes}
	for i := range len(c.bounds) + 1 {
		bound := math.Inf(1)
		if i < len(c.bounds) {
			bound = c.bounds[i]
		}
		in, _ := slices.BinarySearch(classic, bound)
		c.classic = append(c.classic, uint8(in))
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

// slot returns four times the bit length of d plus the two bits that follow the first. Durations of
// one slot are in very few cells. It increases with d.
func slot(d time.Duration) int {
	n := bits.Len64(uint64(d))
	return n*4 + int(uint64(d)<<(64-n)>>61&3)
}

// wholeNanos returns the longest Duration of at most the given seconds.
func wholeNanos(seconds float64) int64 {
	n := time.Duration(seconds * 1e9)
	for ; (n + 1).Seconds() <= seconds; n++ {
	}
	for ; n.Seconds() > seconds; n-- {
	}
	return int64(n)
}

// cell returns the cell of d, which must not be negative. It takes a few steps from the first cell
// of d's slot.
func (b *Buckets) cell(d time.Duration) int {
	i := int(b.first[slot(d)])
	for i < len(b.nanos) && b.nanos[i] < int64(d) {
		i++
	}
	return i
}

// nativeBounds returns the upper bounds of the zero bucket and of the native buckets.
func nativeBounds() []float64 {
	var bounds []float64
	for i := nativeFrom << nativeSchema; i <= nativeTo<<nativeSchema; i++ {
		bounds = append(bounds, math.Exp2(float64(i)/(1<<nativeSchema)))
	}
	return bounds
}

// Of returns the series with this value of the label, and creates it if necessary.
func (v *Histograms) Of(value string) *Histogram {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.series[value]
	if h == nil {
		h = &Histogram{of: v, labels: prometheus.MakeLabelPairs(v.desc, []string{value}), cells: v.cells, exemplars: make([]exemplarSlot, len(classicBounds())+1)}
		v.series[value] = h
	}
	return h
}

// Observe counts d, in the stripe of the processor, and returns its classic bucket.
func (h *Histogram) Observe(own int, d time.Duration) (bucket int) {
	d = max(d, 0) // the clock may have been set back
	cell := h.cells.cell(d)
	if busy := h.busy.Load(); busy != nil {
		(*busy)[own].add(cell, d)
	} else if h.first.add(cell, d) == busyAfter && h.cells.stripes > 1 {
		h.of.spread(h)
	}
	return int(h.cells.classic[cell])
}

// spread makes one count in stripes.
func (h *Histograms) spread(one *Histogram) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy < maxBusy && one.busy.Load() == nil {
		h.busy++
		lines := make([]cellCounts, h.cells.stripes)
		one.busy.Store(&lines)
	}
}

// counts returns the counts of all cells, each of which it reads once, and the sum of all observations.
func (h *Histogram) counts() (counts []uint64, nanos int64) {
	counts = make([]uint64, len(h.cells.bounds)+1)
	add := func(c *cellCounts) {
		for i := range counts {
			counts[i] += c.count(i)
		}
		nanos += c.nanos.Load()
	}
	add(&h.first)
	if busy := h.busy.Load(); busy != nil {
		for i := range *busy {
			add(&(*busy)[i])
		}
	}
	return counts, nanos
}

// ExemplarDue reports whether a bucket needs a new exemplar at the given time, in nanoseconds since 1970.
// Two concurrent calls may both return true.
func (h *Histogram) ExemplarDue(bucket int, at int64) bool {
	set := &h.exemplars[bucket].set
	last := set.Load()
	if at-last < int64(exemplarInterval) && at >= last {
		return false
	}
	set.Store(at)
	return true
}
