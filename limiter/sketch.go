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
// An observation takes constant time and does not allocate. A Sketch must not be used
// concurrently. NewSketch returns one.
type Sketch[T any] struct {
	counters  []sketchCounter[T] // those in use
	groups    []sketchGroup      // those in use are linked in ascending order of count
	lowest    int32
	freeGroup int32 // first of the linked unused groups
	index     index // of counters, by key
	seed      seed
	total     int64
	evicted   bool // at least one key has lost its counter
}

// noIndex is the index that stands for no counter or no group.
const noIndex = int32(-1)

// A sketchCounter is the counter of one key. Its count is that of its group.
type sketchCounter[T any] struct {
	key        Key
	maxError   int64 // upper bound of the part of the count that belongs to other keys
	group      int32
	prev, next int32 // in the group
	value      T
}

// A sketchGroup is the list of the counters with the same count.
type sketchGroup struct {
	count      int64
	first      int32 // first counter of the list
	prev, next int32 // groups with the next lower and the next higher count
}

// NewSketch returns an empty Sketch with k counters, 1 to 16384.
func NewSketch[T any](k int) *Sketch[T] {
	k = min(max(k, 1), 1<<14)
	s := &Sketch[T]{
		counters: make([]sketchCounter[T], 0, k), groups: make([]sketchGroup, k+1), seed: seed{rand.Uint64(), rand.Uint64()},
	}
	s.Clear()
	return s
}

// Clear removes all keys and observations.
func (s *Sketch[T]) Clear() {
	s.counters, s.total, s.evicted, s.lowest, s.freeGroup = s.counters[:0], 0, false, noIndex, 0
	for i := range s.groups {
		s.groups[i] = sketchGroup{first: noIndex, next: int32(i) + 1}
	}
	s.groups[len(s.groups)-1].next = noIndex
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
		s.increment(int32(at.item - 1))
		return nil
	}
	var c int32
	if len(s.counters) < cap(s.counters) {
		c = int32(len(s.counters))
		s.counters = append(s.counters, sketchCounter[T]{key: k, group: noIndex})
	} else {
		c, s.evicted = s.groups[s.lowest].first, true
		old := &s.counters[c]
		s.index.remove(s.find(&old.key, s.seed.hash(&old.key)), s.hashOf)
		*old = sketchCounter[T]{key: k, maxError: s.groups[s.lowest].count, group: old.group, prev: old.prev, next: old.next}
	}
	s.index.add(h, uint32(c), s.hashOf)
	s.increment(c)
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

// increment adds 1 to the count of c: it moves c to the next group, or to a new one.
func (s *Sketch[T]) increment(c int32) {
	own := s.counters[c].group
	count, next := int64(1), s.lowest
	if own != noIndex {
		count, next = s.groups[own].count+1, s.groups[own].next
		if s.groups[own].first == c && s.counters[c].next == noIndex && (next == noIndex || s.groups[next].count != count) {
			s.groups[own].count = count // c is the only counter of the group
			return
		}
		s.unlink(c, own)
	}
	if next == noIndex || s.groups[next].count != count {
		next = s.insertGroup(count, own, next)
	}
	g, counter := &s.groups[next], &s.counters[c]
	counter.group, counter.prev, counter.next = next, noIndex, g.first
	if g.first != noIndex {
		s.counters[g.first].prev = c
	}
	g.first = c
	if own != noIndex && s.groups[own].first == noIndex {
		s.removeGroup(own)
	}
}

// unlink removes c from its group, which may be empty then.
func (s *Sketch[T]) unlink(c, own int32) {
	counter := &s.counters[c]
	if counter.prev != noIndex {
		s.counters[counter.prev].next = counter.next
	} else {
		s.groups[own].first = counter.next
	}
	if counter.next != noIndex {
		s.counters[counter.next].prev = counter.prev
	}
}

// insertGroup adds a group with this count between prev and next. There is one more group
// than counters, because prev may become empty only after that.
func (s *Sketch[T]) insertGroup(count int64, prev, next int32) int32 {
	g := s.freeGroup
	s.freeGroup = s.groups[g].next
	s.groups[g] = sketchGroup{count: count, first: noIndex, prev: prev, next: next}
	if prev == noIndex {
		s.lowest = g
	} else {
		s.groups[prev].next = g
	}
	if next != noIndex {
		s.groups[next].prev = g
	}
	return g
}

// removeGroup removes an empty group from the list.
func (s *Sketch[T]) removeGroup(g int32) {
	removed := s.groups[g]
	if removed.prev == noIndex {
		s.lowest = removed.next
	} else {
		s.groups[removed.prev].next = removed.next
	}
	if removed.next != noIndex {
		s.groups[removed.next].prev = removed.prev
	}
	s.groups[g] = sketchGroup{first: noIndex, next: s.freeGroup}
	s.freeGroup = g
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
		h.Keys[i] = HeavyHitter[Key, T]{c.key, s.groups[c.group].count, c.maxError, c.value}
	}
	if s.evicted {
		h.Floor = s.groups[s.lowest].count
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
