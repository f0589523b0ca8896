package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// A Registry registers what it makes, under names that begin with weir_.
type Registry struct{ prometheus.Registerer }

// Counter returns a new counter for each combination of the values of some labels.
func (r Registry) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
}

// Gauge returns a new gauge for each combination of the values of some labels.
func (r Registry) Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, labels)
}

// Each calls do for each series of v, with its labels and what it has.
func Each(v prometheus.Collector, do func(label map[string]string, m *dto.Metric)) {
	all := make(chan prometheus.Metric, 64)
	go func() {
		v.Collect(all)
		close(all)
	}()
	for one := range all {
		var m dto.Metric
		if err := one.Write(&m); err != nil {
			continue // a counter can always be written
		}
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		do(label, &m)
	}
}

// busyAfter is the count from which a series is counted in stripes.
const busyAfter = 1 << 12

// Counters is a counter for each combination of the values of some labels. A counter that is busy is
// counted in stripes, so that processors do not write the same memory for each request.
type Counters struct {
	desc    *prometheus.Desc
	stripes int

	mu     sync.Mutex // guards what follows
	series map[string]*Counter
	lines  []counterLine // of the stripes, for the next busy counters
	used   int           // counters in lines
}

// A Counter is one series. It is safe for concurrent use.
type Counter struct {
	of      *Counters
	labels  []*dto.LabelPair
	created *timestamppb.Timestamp
	first   atomic.Uint64 // the count until the counter was busy
	busy    atomic.Pointer[busyCounter]
}

// A busyCounter is where the rest is counted: one word in the line of each stripe.
type busyCounter struct {
	lines []counterLine
	index int
}

// A counterLine holds words of one stripe.
type counterLine [stripe.LineSize / 8]atomic.Uint64

// NewCounters returns counters weir_NAME in so many stripes.
func NewCounters(stripes int, name, help string, labels ...string) *Counters {
	return &Counters{desc: prometheus.NewDesc("weir_"+name, help, labels, nil), stripes: stripes, series: map[string]*Counter{}}
}

// WithLabelValues returns the series with these values of the labels, and creates it if necessary.
func (c *Counters) WithLabelValues(values ...string) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := fmt.Sprintf("%q", values)
	one := c.series[id]
	if one == nil {
		one = &Counter{of: c, created: timestamppb.Now(), labels: prometheus.MakeLabelPairs(c.desc, values)}
		c.series[id] = one
	}
	return one
}

// Inc adds 1, in the stripe of the processor.
func (c *Counter) Inc(own int) {
	if b := c.busy.Load(); b != nil {
		b.lines[own][b.index].Add(1)
		return
	}
	if c.first.Add(1) >= busyAfter && c.of.stripes > 1 {
		c.of.spread(c)
	}
}

// spread makes one count in stripes.
func (c *Counters) spread(one *Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.busy.Load() != nil {
		return
	}
	if c.used == len(counterLine{}) || c.lines == nil {
		c.lines, c.used = make([]counterLine, c.stripes), 0
	}
	one.busy.Store(&busyCounter{c.lines, c.used})
	c.used++
}

// Value returns the count.
func (c *Counter) Value() uint64 {
	n := c.first.Load()
	if b := c.busy.Load(); b != nil {
		for i := range b.lines {
			n += b.lines[i][b.index].Load()
		}
	}
	return n
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *Counters) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.series {
		to <- one
	}
}

// Desc implements prometheus.Metric.
func (c *Counter) Desc() *prometheus.Desc { return c.of.desc }

// Write implements prometheus.Metric.
func (c *Counter) Write(to *dto.Metric) error {
	to.Label, to.Counter = c.labels, &dto.Counter{Value: new(float64(c.Value())), CreatedTimestamp: c.created}
	return nil
}

// Describe implements prometheus.Collector.
func (c *Counter) Describe(to chan<- *prometheus.Desc) { to <- c.of.desc }

// Collect implements prometheus.Collector.
func (c *Counter) Collect(to chan<- prometheus.Metric) { to <- c }

// Describe implements prometheus.Collector.
func (v *Histograms) Describe(to chan<- *prometheus.Desc) { to <- v.desc }

// Collect implements prometheus.Collector.
func (v *Histograms) Collect(to chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.series {
		to <- &histogramMetric{v.desc, h}
	}
}

// A histogramMetric exports a histogram.
type histogramMetric struct {
	desc *prometheus.Desc
	*Histogram
}

// Desc implements prometheus.Metric.
func (m *histogramMetric) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric. It reads each cell once, so that all counts are consistent
// despite concurrent observations.
func (m *histogramMetric) Write(to *dto.Metric) error {
	bounds := classicBounds()
	classic, native := make([]uint64, len(bounds)+1), make([]int64, m.cells.native[len(m.cells.native)-1]+1)
	var all uint64
	counts, nanos := m.counts()
	for i, n := range counts {
		classic[m.cells.classic[i]] += n
		native[m.cells.native[i]] += int64(n)
		all += n
	}
	sum, zero := time.Duration(nanos).Seconds(), uint64(native[0])
	schema, threshold := int32(nativeSchema), math.Exp2(nativeFrom)
	h := &dto.Histogram{SampleCount: &all, SampleSum: &sum, Schema: &schema, ZeroThreshold: &threshold,
		ZeroCount: &zero}
	m.writeClassic(h, bounds, classic)
	writeNative(h, native)
	to.Label, to.Histogram = m.labels, h
	return nil
}

// writeClassic writes cumulative buckets. The encoder adds the +Inf bucket, unless it has an
// exemplar.
func (m *histogramMetric) writeClassic(h *dto.Histogram, bounds []float64, counts []uint64) {
	var below uint64
	for i, n := range counts {
		below += n
		upTo, bound, example := below, math.Inf(1), m.exemplars[i].is.Load()
		if i < len(bounds) {
			bound = bounds[i]
		} else if example == nil {
			break
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: &upTo, UpperBound: &bound, Exemplar: example})
		if example != nil {
			h.Exemplars = append(h.Exemplars, example)
		}
	}
}

// writeNative writes the buckets that are not empty as spans of adjacent buckets, each count as the
// difference to the previous one. counts[0] is the zero bucket. A histogram without such buckets
// has one empty span, by which it is recognized as native.
func writeNative(h *dto.Histogram, counts []int64) {
	const first = nativeFrom<<nativeSchema + 1
	last, next := int64(0), int32(0) // count and next index of the previous bucket
	for i, n := range counts[1:] {
		if n == 0 {
			continue
		}
		index := int32(first + i)
		if runs := len(h.PositiveSpan); runs > 0 && index == next {
			*h.PositiveSpan[runs-1].Length++
		} else {
			offset, length := index-next, uint32(1)
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: &length})
		}
		delta := n - last
		h.PositiveDelta = append(h.PositiveDelta, delta)
		last, next = n, index+1
	}
	if len(h.PositiveSpan) == 0 {
		h.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32), Length: new(uint32)}}
	}
}

// maxExemplarLabels is the maximum length of all labels of an exemplar in characters (OpenMetrics).
const maxExemplarLabels = 128

// An Exemplar is a request that was observed in a histogram.
type Exemplar struct {
	Duration           time.Duration
	At                 time.Time // the end of the request
	TraceID, RequestID string    // either may be empty
}

// SetExemplar makes e the exemplar of a bucket in which it was observed. It keeps copies of the IDs. An
// ID for which there is no space is left out.
func (h *Histogram) SetExemplar(bucket int, e Exemplar) {
	out := &dto.Exemplar{Value: new(e.Duration.Seconds()), Timestamp: timestamppb.New(e.At)}
	space := maxExemplarLabels
	add := func(name, text string) {
		if space -= len(name) + len(text); text != "" && space >= 0 {
			text = strings.Clone(text) // it may share the buffer of the connection
			out.Label = append(out.Label, &dto.LabelPair{Name: &name, Value: &text})
		}
	}
	add("trace_id", e.TraceID)
	add("request_id", e.RequestID)
	h.exemplars[bucket].is.Store(out)
}

// Cache caches metrics by the labels that distinguish them, which have a small fixed set of values.
// It is safe for concurrent use.
type Cache[K comparable, M any] struct {
	known atomic.Pointer[cached[K, M]] // replaced, never changed

	mu sync.Mutex // held while it is replaced
}

// cached are the metrics of a Cache.
type cached[K comparable, M any] struct {
	first []cacheEntry[K, M] // those looked up first, which are the most frequent
	all   map[K]M
}

// maxLinear is the number of entries that are compared before the map is used. A comparison
// takes a tenth of the time of a map lookup.
const maxLinear = 4

type cacheEntry[K comparable, M any] struct {
	k K
	m M
}

// Of returns the metric of k, which find looks up by its labels the first time.
func (c *Cache[K, M]) Of(k K, find func() M) M {
	if known := c.known.Load(); known != nil {
		for i := range known.first {
			if one := &known.first[i]; one.k == k {
				return one.m
			}
		}
		if m, ok := known.all[k]; ok {
			return m
		}
	}
	return c.keep(k, find())
}

// keep stores the metric of k, and returns it.
func (c *Cache[K, M]) keep(k K, m M) M {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := cached[K, M]{all: map[K]M{}}
	if known := c.known.Load(); known != nil {
		next.first = slices.Clip(known.first)
		maps.Copy(next.all, known.all)
	}
	if _, found := next.all[k]; !found && len(next.first) < maxLinear {
		next.first = append(next.first, cacheEntry[K, M]{k, m})
	}
	next.all[k] = m
	c.known.Store(&next)
	return m
}
