package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// A HistogramRef is a Histogram that is looked up once. It is safe for concurrent use.
type HistogramRef struct{ cached atomic.Pointer[Histogram] }

// Of returns the series of v with this label.
func (r *HistogramRef) Of(v *Histograms, label string) *Histogram {
	if h := r.cached.Load(); h != nil {
		return h
	}
	return r.keep(v.Of(label))
}

func (r *HistogramRef) keep(h *Histogram) *Histogram {
	r.cached.Store(h)
	return h
}

// Cache caches metrics by the labels that distinguish them, which have a small fixed set of values.
// It is safe for concurrent use.
type Cache[K comparable, M any] struct {
	first atomic.Pointer[[]cacheEntry[K, M]] // the metrics looked up first, which are the most frequent
	all   atomic.Pointer[map[K]M]            // both are replaced, never changed

	mu sync.Mutex // held while they are replaced
}

// maxLinear is the number of entries that are compared before the map is used. A comparison
// takes a tenth of the time of a map lookup.
const maxLinear = 4

type cacheEntry[K comparable, M any] struct {
	k K
	m M
}

// Get returns the metric of k, if it was looked up before.
func (c *Cache[K, M]) Get(k K) (m M, ok bool) {
	if first := c.first.Load(); first != nil {
		for i := range *first {
			if one := &(*first)[i]; one.k == k {
				return one.m, true
			}
		}
	}
	if all := c.all.Load(); all != nil {
		m, ok = (*all)[k]
	}
	return m, ok
}

// Keep stores the metric of k, and returns it.
func (c *Cache[K, M]) Keep(k K, m M) M {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[K]M{}
	if all := c.all.Load(); all != nil {
		maps.Copy(next, *all)
	}
	next[k] = m
	c.all.Store(&next)
	var first []cacheEntry[K, M]
	if entries := c.first.Load(); entries != nil {
		first = slices.Clone(*entries)
	}
	if len(first) < maxLinear && !slices.ContainsFunc(first, func(e cacheEntry[K, M]) bool { return e.k == k }) {
		first = append(first, cacheEntry[K, M]{k, m})
		c.first.Store(&first)
	}
	return m
}
