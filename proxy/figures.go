package proxy

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// figures are the metrics of one route that every request touches, each looked up by
// its labels once: that costs more than counting does. The zero figures are ready. A
// series is not there before something is counted in it.
type figures struct {
	requests         found[int, prometheus.Counter] // by status
	durations        histogramRef
	own              histogramRef
	upstream         histogramRef
	line             histogramRef
	upstreamRequests found[upstreamResult, prometheus.Counter]
}

// A histogramRef is a histogram that is looked up once.
type histogramRef struct{ found atomic.Pointer[histogram] }

// of is the series of v with this label.
func (s *histogramRef) of(v *histogramVec, label string) *histogram {
	h := s.found.Load()
	if h == nil {
		h = v.of(label)
		s.found.Store(h)
	}
	return h
}

// An upstreamResult is what came of a request that was to be forwarded.
type upstreamResult struct{ target, outcome string }

// found are metrics that were looked up, by what tells them apart; of a small fixed
// set.
type found[K comparable, M any] struct {
	first atomic.Pointer[foundOne[K, M]] // that was looked up: what most requests want
	all   atomic.Pointer[map[K]M]        // never changed but replaced

	mu sync.Mutex // held while it is
}

type foundOne[K comparable, M any] struct {
	k K
	m M
}

// get is the metric of k, if it was looked up before.
func (f *found[K, M]) get(k K) (m M, ok bool) {
	if first := f.first.Load(); first != nil && first.k == k {
		return first.m, true
	}
	if all := f.all.Load(); all != nil {
		m, ok = (*all)[k]
	}
	return m, ok
}

// keep remembers the metric of k.
func (f *found[K, M]) keep(k K, m M) M {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[K]M{}
	if all := f.all.Load(); all != nil {
		maps.Copy(next, *all)
	}
	next[k] = m
	f.all.Store(&next)
	f.first.CompareAndSwap(nil, &foundOne[K, M]{k, m})
	return m
}
