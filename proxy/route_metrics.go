package proxy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/upstream"
)

// routeMetrics are the metrics of one route that are updated by every request. Each is looked up by its
// labels once, because the lookup costs more than the update. The zero value is ready to use. A
// series is created when it is first updated.
type routeMetrics struct {
	requests         metricCache[int, prometheus.Counter] // by status
	durations        histogramRef
	own              histogramRef
	upstream         histogramRef
	wait             histogramRef
	upstreamRequests metricCache[upstreamResult, prometheus.Counter]
}

// A histogramRef is a histogram that is looked up once.
type histogramRef struct{ cached atomic.Pointer[histogram] }

// of returns the histogram of v with this label.
func (s *histogramRef) of(v *histogramVec, label string) *histogram {
	if h := s.cached.Load(); h != nil {
		return h
	}
	return s.keep(v.of(label))
}

func (s *histogramRef) keep(h *histogram) *histogram {
	s.cached.Store(h)
	return h
}

// A counterRef is a counter that is looked up once.
type counterRef struct {
	cached atomic.Pointer[prometheus.Counter]
}

// An upstreamResult is the result of a request that was to be forwarded.
type upstreamResult struct {
	target string
	kind   upstream.ResultKind
}

// metricCache caches metrics by the labels that distinguish them, which have a small fixed set of values.
// It is safe for concurrent use.
type metricCache[K comparable, M any] struct {
	first atomic.Pointer[[]metricCacheEntry[K, M]] // the metrics looked up first, which are the most frequent
	all   atomic.Pointer[map[K]M]                  // both are replaced, never changed

	mu sync.Mutex // held while they are replaced
}

// maxLinear is the number of entries that are compared before the map is used. A comparison
// takes a tenth of the time of a map lookup.
const maxLinear = 4

type metricCacheEntry[K comparable, M any] struct {
	k K
	m M
}

// get returns the metric of k, if it was looked up before.
func (f *metricCache[K, M]) get(k K) (m M, ok bool) {
	if first := f.first.Load(); first != nil {
		for i := range *first {
			if one := &(*first)[i]; one.k == k {
				return one.m, true
			}
		}
	}
	if all := f.all.Load(); all != nil {
		m, ok = (*all)[k]
	}
	return m, ok
}

// add stores the metric of k.
func (f *metricCache[K, M]) keep(k K, m M) M {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[K]M{}
	if all := f.all.Load(); all != nil {
		maps.Copy(next, *all)
	}
	next[k] = m
	f.all.Store(&next)
	var first []metricCacheEntry[K, M]
	if entries := f.first.Load(); entries != nil {
		first = slices.Clone(*entries)
	}
	if len(first) < maxLinear && !slices.ContainsFunc(first, func(e metricCacheEntry[K, M]) bool { return e.k == k }) {
		first = append(first, metricCacheEntry[K, M]{k, m})
		f.first.Store(&first)
	}
	return m
}
