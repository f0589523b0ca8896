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
	first atomic.Pointer[[]foundOne[K, M]] // some that were looked up early: what most requests want
	all   atomic.Pointer[map[K]M]          // neither is changed but replaced

	mu sync.Mutex // held while it is
}

// mostCompared is how many are compared before the map is asked: a comparison takes a
// tenth of the time.
const mostCompared = 4

type foundOne[K comparable, M any] struct {
	k K
	m M
}

// get is the metric of k, if it was looked up before.
func (f *found[K, M]) get(k K) (m M, ok bool) {
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
	if len(next) <= mostCompared {
		var first []foundOne[K, M]
		for k, m := range next {
			first = append(first, foundOne[K, M]{k, m})
		}
		f.first.Store(&first)
	}
	return m
}
