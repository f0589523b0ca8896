package limiter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
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
// allocate once there are k keys. A Sketch must not be used concurrently. NewSketch returns one.
type Sketch[T any] struct {
	k        int
	counters []sketchCounter[T] // those in use
	order    []sketchCount      // their counts, the highest one first
	index    index              // of counters, by key
	seed     seed
	total    int64
	evicted  bool // at least one key has lost its counter
}

// A sketchCounter is the counter of one key.
type sketchCounter[T any] struct {
	key      Key
	maxError int64 // upper bound of the part of the count that belongs to other keys
	place    int   // of its count in the order
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
	return &Sketch[T]{k: k, seed: seed{rand.Uint64(), rand.Uint64()}} // its memory grows with the keys
}

// Clear removes all keys and observations.
func (s *Sketch[T]) Clear() {
	s.counters, s.order, s.total, s.evicted = s.counters[:0], s.order[:0], 0, false
	clear(s.index.slots)
	s.index.used = 0
}

// Size returns the number of counters.
func (s *Sketch[T]) Size() int { return s.k }

// Observe counts k. If k has got a new counter, it returns a pointer to the counter's
// value, which is zero, for the caller to set. Otherwise it returns nil.
func (s *Sketch[T]) Observe(k Key) *T {
	s.total++
	h := s.seed.hash(&k)
	if at := s.find(&k, h); at.item > 0 {
		s.increment(s.counters[at.item-1].place)
		return nil
	}
	c, last := uint32(len(s.counters)), len(s.counters)
	if last < s.k {
		s.counters = append(s.counters, sketchCounter[T]{key: k, place: last})
		s.order = append(s.order, sketchCount{counter: c})
	} else {
		last--
		c, s.evicted = s.order[last].counter, true
		old := &s.counters[c]
		s.index.remove(s.find(&old.key, s.seed.hash(&old.key)), s.hashOf)
		*old = sketchCounter[T]{key: k, maxError: s.order[last].count, place: last}
	}
	s.index.add(h, c, s.hashOf)
	s.increment(last)
	return &s.counters[c].value
}

// hashOf returns the hash of the key of a counter. Clients can choose their keys, but do not know the seed.
func (s *Sketch[T]) hashOf(c uint32) uint64 { return s.seed.hash(&s.counters[c].key) }

// find returns the probe of k, whose hash is h; a probe without an item if it has no counter.
func (s *Sketch[T]) find(k *Key, h uint64) probe {
	return s.index.find(h, func(c uint32) bool { return s.counters[c].key == *k })
}

// increment adds 1 to the count at a place of the order. Before that it moves it to the first place of a count as high.
func (s *Sketch[T]) increment(place int) {
	moved := s.order[place]
	first := place
	if place > 0 && s.order[place-1].count == moved.count { // seldom for a frequent key
		first = sort.Search(place, func(i int) bool { return s.order[i].count <= moved.count })
	}
	s.order[place] = s.order[first]
	s.counters[s.order[place].counter].place = place
	s.order[first] = sketchCount{moved.count + 1, moved.counter}
	s.counters[moved.counter].place = first
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
		h.Keys[i] = HeavyHitter[Key, T]{c.key, s.order[c.place].count, c.maxError, c.value}
	}
	if s.evicted {
		h.Floor = s.order[len(s.order)-1].count
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

// TopKeys finds the keys that were observed most often recently. It divides time into
// slices, each with a Sketch of its own, and drops slices that are too old. It is safe
// for concurrent use. With k counters and values of size t it takes at most (32 + t) k
// bytes for each closed slice and about (60 + t) k for the current one, and nothing
// before the first observation.
//
// Processors that observe at the same time wait for each other, until that has happened
// often. From then on each has a sketch of the current slice, in a stripe of its own, and
// the sketches are merged when they are read: counts and errors have the same bounds, as
// those of a key add up. NewTopKeys returns one.
type TopKeys[T any] struct {
	stripes []keyStripe[T] // all but the first are used only if isBusy
	newest  atomic.Int64   // the greatest number so far
	isBusy  atomic.Bool
	waits   atomic.Int32 // how often the first stripe was in use, as long as it is the only one

	mu     sync.Mutex // guards what follows; taken after that of a stripe
	k      int        // counters of the next slice
	closed []closedSlice[T]
}

// lineSize is the distance in bytes of memory that different processors write. Processors fetch two cache lines of
// 64 bytes together.
const lineSize = 128

// waitsUntilBusy is how often a TopKeys is in use when it is needed, before it uses all stripes.
const waitsUntilBusy = 1000

// A keyStripe is the current slice of one processor. No two are in the same cache lines.
type keyStripe[T any] struct {
	mu      sync.Mutex // guards the fields below
	current *Sketch[T] // nil before the first observation
	number  int64      // of the current slice
	_       [lineSize - 24]byte
}

// A closedSlice is the result of a slice that is over.
type closedSlice[T any] struct {
	number int64
	keys   HeavyHitters[Key, T]
}

// NewTopKeys returns a TopKeys of k counters for this number of slices, including the
// current one, in at most so many stripes.
func NewTopKeys[T any](k, slices, stripes int) *TopKeys[T] {
	return &TopKeys[T]{stripes: make([]keyStripe[T], max(stripes, 1)), k: k, closed: make([]closedSlice[T], max(slices-1, 0))}
}

// Resize sets the number of counters of all slices that start from now on.
func (t *TopKeys[T]) Resize(k int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.k = k
}

// Observe counts k in the slice with this number, in the stripe of the processor. Numbers
// increase with time; an observation with an older number counts in the newest slice. If k
// has got a new counter, fill sets the counter's value; it is called with a lock held.
func (t *TopKeys[T]) Observe(own int, number int64, k Key, fill func(*T)) {
	for newest := t.newest.Load(); number > newest; newest = t.newest.Load() {
		t.newest.CompareAndSwap(newest, number)
	}
	s := t.lock(own)
	if number = t.newest.Load(); s.number != number || s.current == nil {
		t.startSliceLocked(s, number)
	}
	if fresh := s.current.Observe(k); fresh != nil {
		fill(fresh)
	}
	s.mu.Unlock()
}

// lock locks and returns the stripe of a processor.
func (t *TopKeys[T]) lock(own int) *keyStripe[T] {
	if t.isBusy.Load() {
		s := &t.stripes[own]
		s.mu.Lock()
		return s
	}
	s := &t.stripes[0]
	if !s.mu.TryLock() {
		if t.waits.Add(1) >= waitsUntilBusy && len(t.stripes) > 1 {
			t.isBusy.Store(true)
		}
		s.mu.Lock()
	}
	return s
}

// startSliceLocked makes the slice with this number the current one of s, unless that is newer.
func (t *TopKeys[T]) startSliceLocked(s *keyStripe[T], number int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.current == nil:
		s.current, s.number = NewSketch[T](t.k), number
	case number > s.number:
		t.closeLocked(s.number, s.current.HeavyHitters())
		if s.current.Clear(); s.current.Size() != t.k {
			s.current = NewSketch[T](t.k)
		}
		s.number = number
	}
}

// closeLocked keeps the result of the slice with this number, of one stripe.
func (t *TopKeys[T]) closeLocked(number int64, keys HeavyHitters[Key, T]) {
	if len(t.closed) == 0 {
		return
	}
	switch c := &t.closed[number%int64(len(t.closed))]; {
	case c.number == number && c.keys.Total > 0: // of another stripe
		c.keys = c.keys.Merge(keys).Top(max(t.k, len(c.keys.Keys), len(keys.Keys)))
	case c.number <= number:
		*c = closedSlice[T]{number, keys}
	}
}

// Last returns the heavy hitters of the last n slices, up to and including the slice with
// the number now.
func (t *TopKeys[T]) Last(now int64, n int) HeavyHitters[Key, T] {
	return HeavyHitters[Key, T]{}.Merge(t.slicesAfter(now - int64(min(n, len(t.closed)+1)))...)
}

// slicesAfter returns the results of the slices with a number greater than before. The
// results are immutable, so that they can be merged without a lock.
func (t *TopKeys[T]) slicesAfter(before int64) (all []HeavyHitters[Key, T]) {
	for i := range t.stripes { // all at once, so that none is closed between its look and that at the closed ones
		t.stripes[i].mu.Lock()
		defer t.stripes[i].mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.closed {
		if c.number > before && c.keys.Total > 0 { // unused elements have no observations
			all = append(all, c.keys)
		}
	}
	for i := range t.stripes {
		if s := &t.stripes[i]; s.current != nil && s.number > before {
			all = append(all, s.current.HeavyHitters())
		}
	}
	return all
}
