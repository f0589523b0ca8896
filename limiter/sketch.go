package limiter

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// A Sketch finds the most frequent keys of a stream in bounded memory, by the
// space-saving algorithm (Metwally, Agrawal and El Abbadi: Efficient Computation of
// Frequent and Top-k Elements in Data Streams, 2005). With k counters and N observations:
//
//   - a key that was observed more than N/k times has a counter;
//   - a counter is never too low, and at most N/k too high; it also has an upper bound of its error.
//
// Each counter has a value of type T, which the caller sets when a key gets the counter.
// An observation takes a time logarithmic in k, less for frequent keys, and does not
// allocate. A Sketch must not be used concurrently. NewSketch returns one.
type Sketch[T any] struct {
	counters []sketchCounter[T] // those in use
	heap     []sketchCount      // their counts; the lowest one first, once all counters are in use
	index    index              // of counters, by key
	seed     seed
	total    int64
	evicted  bool // at least one key has lost its counter
}

// A sketchCounter is the counter of one key.
type sketchCounter[T any] struct {
	key      Key
	maxError int64 // upper bound of the part of the count that belongs to other keys
	place    int   // of its count in the heap
	value    T
}

// A sketchCount is the count of a counter.
type sketchCount struct {
	count   int64
	counter uint32
}

// NewSketch returns an empty Sketch with k counters, 1 to 16384.
func NewSketch[T any](k int) *Sketch[T] {
	k = min(max(k, 1), 1<<14)
	return &Sketch[T]{
		counters: make([]sketchCounter[T], 0, k), heap: make([]sketchCount, 0, k), seed: seed{rand.Uint64(), rand.Uint64()},
	}
}

// Clear removes all keys and observations.
func (s *Sketch[T]) Clear() {
	s.counters, s.heap, s.total, s.evicted = s.counters[:0], s.heap[:0], 0, false
	s.index.clear()
}

// Size returns the number of counters.
func (s *Sketch[T]) Size() int { return cap(s.counters) }

// Observe counts k. If k has got a new counter, it returns a pointer to the counter's
// value, which is zero, for the caller to set. Otherwise it returns nil.
func (s *Sketch[T]) Observe(k Key) *T {
	s.total++
	h := s.seed.hash(&k)
	if at := s.find(&k, h); at.item > 0 {
		s.increment(s.counters[at.item-1].place)
		return nil
	}
	c := uint32(len(s.counters))
	if len(s.counters) < cap(s.counters) {
		s.counters = append(s.counters, sketchCounter[T]{key: k, place: len(s.heap)})
		s.heap = append(s.heap, sketchCount{counter: c})
		if len(s.counters) == cap(s.counters) {
			for place := range slices.Backward(s.heap) {
				s.sink(place)
			}
		}
	} else {
		c, s.evicted = s.heap[0].counter, true
		old := &s.counters[c]
		s.index.remove(s.find(&old.key, s.seed.hash(&old.key)), s.hashOf)
		*old = sketchCounter[T]{key: k, maxError: s.heap[0].count}
	}
	s.index.add(h, c, s.hashOf)
	s.increment(s.counters[c].place)
	return &s.counters[c].value
}

// hashOf returns the hash of the key of a counter. Clients can choose their keys, but do not know the seed.
func (s *Sketch[T]) hashOf(c uint32) uint64 { return s.seed.hash(&s.counters[c].key) }

// find returns the probe of k, whose hash is h; a probe without an item if it has no counter.
func (s *Sketch[T]) find(k *Key, h uint64) probe {
	p := s.index.first(h)
	for p.item > 0 && s.counters[p.item-1].key != *k {
		p = s.index.next(h, p)
	}
	return p
}

// increment adds 1 to the count at a place of the heap.
func (s *Sketch[T]) increment(place int) {
	s.heap[place].count++
	s.sink(place)
}

// sink moves the count at a place of the heap down until none below it is lower.
func (s *Sketch[T]) sink(place int) {
	moved := s.heap[place]
	for {
		below := 2*place + 1
		if below+1 < len(s.heap) && s.heap[below+1].count < s.heap[below].count {
			below++
		}
		if below >= len(s.heap) || s.heap[below].count >= moved.count {
			break
		}
		s.heap[place] = s.heap[below]
		s.counters[s.heap[place].counter].place = place
		place = below
	}
	s.heap[place] = moved
	s.counters[moved.counter].place = place
}

// HeavyHitters are the most frequent keys according to one or more sketches. It is
// immutable. Merge combines those of several periods or processes, with the same result
// in any order and grouping.
type HeavyHitters[K comparable, T any] struct {
	// Total is the number of observations.
	Total int64
	// Floor is the maximum count of a key that is not listed.
	Floor int64
	// Keys are the listed keys; they are sorted only after Top.
	Keys []HeavyHitter[K, T]
}

// A HeavyHitter is a key that was observed at most Count and at least Count-Error times.
type HeavyHitter[K comparable, T any] struct {
	Key          K
	Count, Error int64
	Value        T // associated data
}

// HeavyHitters returns the keys that have a counter.
func (s *Sketch[T]) HeavyHitters() HeavyHitters[Key, T] {
	h := HeavyHitters[Key, T]{Total: s.total, Keys: make([]HeavyHitter[Key, T], len(s.counters))}
	for i := range s.counters {
		c := &s.counters[i]
		h.Keys[i] = HeavyHitter[Key, T]{c.key, s.heap[c.place].count, c.maxError, c.value}
	}
	if s.evicted {
		h.Floor = s.heap[0].count
	}
	return h
}

// Merge returns the heavy hitters of all. A key that one of them does not list may have been
// observed up to Floor times there, so counts, errors and floors add up.
func (h HeavyHitters[K, T]) Merge(others ...HeavyHitters[K, T]) HeavyHitters[K, T] {
	var out HeavyHitters[K, T]
	all, size := append([]HeavyHitters[K, T]{h}, others...), 0
	for _, o := range all {
		size = max(size, len(o.Keys))
	}
	at := make(map[K]int, size)
	for _, o := range all {
		for _, k := range o.Keys {
			i, known := at[k.Key]
			if !known {
				i = len(out.Keys)
				at[k.Key] = i
				out.Keys = append(out.Keys, HeavyHitter[K, T]{Key: k.Key, Value: k.Value})
			}
			out.Keys[i].Count += k.Count - o.Floor
			out.Keys[i].Error += k.Error - o.Floor
		}
		out.Total += o.Total
		out.Floor += o.Floor
	}
	for i := range out.Keys {
		out.Keys[i].Count += out.Floor
		out.Keys[i].Error += out.Floor
	}
	return out
}

// Certain returns the keys that were observed at least twice as often as the error of their count.
// Floor then covers the others too.
func (h HeavyHitters[K, T]) Certain() HeavyHitters[K, T] {
	keys := h.Keys
	h.Keys = nil
	for _, k := range keys {
		if k.Count-k.Error < 2*k.Error {
			h.Floor = max(h.Floor, k.Count)
			continue
		}
		h.Keys = append(h.Keys, k)
	}
	return h
}

// Top returns the n most frequent keys, the most frequent first. Floor then covers the
// keys that were cut off too.
func (h HeavyHitters[K, T]) Top(n int) HeavyHitters[K, T] {
	h.Keys = slices.Clone(h.Keys)
	slices.SortStableFunc(h.Keys, func(a, b HeavyHitter[K, T]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
	if len(h.Keys) > n {
		h.Floor = max(h.Floor, h.Keys[n].Count)
		h.Keys = slices.Clip(h.Keys[:n])
	}
	return h
}
