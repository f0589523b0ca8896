package metrics

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

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
	h := &dto.Histogram{SampleCount: &all, SampleSum: &sum, Schema: &schema, ZeroThreshold: &threshold, ZeroCount: &zero}
	m.writeClassic(h, bounds, classic)
	writeNative(h, native)
	to.Label, to.Histogram = []*dto.LabelPair{m.label}, h
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
	value := e.Duration.Seconds()
	out := &dto.Exemplar{Value: &value, Timestamp: timestamppb.New(e.At)}
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
