package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// busyAfter is the count from which a series is counted in stripes.
const busyAfter = 1 << 12

// Counters is a counter for each combination of the values of some labels. A counter that is busy is
// counted in stripes, so that processors do not write the same memory for each request.
type Counters struct {
	desc    *prometheus.Desc
	labels  []string
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
	return &Counters{desc: prometheus.NewDesc("weir_"+name, help, labels, nil), labels: labels, stripes: stripes, series: map[string]*Counter{}}
}

// WithLabelValues returns the series with these values of the labels, and creates it if necessary.
func (c *Counters) WithLabelValues(values ...string) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := fmt.Sprintf("%q", values)
	one := c.series[id]
	if one == nil {
		one = &Counter{of: c, created: timestamppb.Now()}
		for i, name := range c.labels {
			one.labels = append(one.labels, &dto.LabelPair{Name: &name, Value: proto.String(values[i])})
		}
		slices.SortFunc(one.labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
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
	value := float64(c.Value())
	to.Label, to.Counter = c.labels, &dto.Counter{Value: &value, CreatedTimestamp: c.created}
	return nil
}

// Describe implements prometheus.Collector.
func (c *Counter) Describe(to chan<- *prometheus.Desc) { to <- c.of.desc }

// Collect implements prometheus.Collector.
func (c *Counter) Collect(to chan<- prometheus.Metric) { to <- c }
