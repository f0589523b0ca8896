package limiter

import "sync"

// TopKeys finds the keys that were observed most often recently. It divides time into
// slices, each with a Sketch of its own, and drops slices that are too old. It is safe
// for concurrent use. With k counters and values of size t it takes at most (32 + t) k
// bytes for each closed slice and about (80 + t) k for the current one, and nothing
// before the first observation. NewTopKeys returns one.
type TopKeys[T any] struct {
	mu      sync.Mutex // guards the fields below
	k       int        // counters of the next slice
	current *Sketch[T] // nil before the first observation
	number  int64      // of the current slice
	closed  []closedSlice[T]
}

// A closedSlice is the result of a slice that is over.
type closedSlice[T any] struct {
	number int64
	keys   HeavyHitters[Key, T]
}

// NewTopKeys returns a TopKeys of k counters for this number of slices, including the
// current one.
func NewTopKeys[T any](k, slices int) *TopKeys[T] {
	return &TopKeys[T]{k: k, closed: make([]closedSlice[T], max(slices-1, 0))}
}

// Resize sets the number of counters of all slices that start from now on.
func (t *TopKeys[T]) Resize(k int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.k = k
}

// Observe counts k in the slice with this number. Numbers increase with time; an
// observation with an older number counts in the current slice. If k has got a new
// counter, fill sets the counter's value; it is called with the lock held.
func (t *TopKeys[T]) Observe(number int64, k Key, fill func(*T)) {
	t.mu.Lock()
	if t.number != number || t.current == nil {
		t.startSliceLocked(number)
	}
	if fresh := t.current.Observe(k); fresh != nil {
		fill(fresh)
	}
	t.mu.Unlock()
}

// startSliceLocked makes the slice with this number the current one, unless the current
// one is newer.
func (t *TopKeys[T]) startSliceLocked(number int64) {
	switch {
	case t.current == nil:
		t.current, t.number = NewSketch[T](t.k), number
	case number > t.number:
		if len(t.closed) > 0 {
			t.closed[t.number%int64(len(t.closed))] = closedSlice[T]{t.number, t.current.HeavyHitters()}
		}
		if t.current.Clear(); t.current.Size() != t.k {
			t.current = NewSketch[T](t.k)
		}
		t.number = number
	}
}

// Last returns the heavy hitters of the last n slices, up to and including the slice with
// the number now.
func (t *TopKeys[T]) Last(now int64, n int) HeavyHitters[Key, T] {
	return HeavyHitters[Key, T]{}.Merge(t.slicesAfter(now - int64(min(n, len(t.closed)+1)))...)
}

// slicesAfter returns the results of the slices with a number greater than before. The
// results are immutable, so that they can be merged without the lock.
func (t *TopKeys[T]) slicesAfter(before int64) (all []HeavyHitters[Key, T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.closed {
		if c.number > before && c.keys.Total > 0 { // unused elements have no observations
			all = append(all, c.keys)
		}
	}
	if t.current != nil && t.number > before {
		all = append(all, t.current.HeavyHitters())
	}
	return all
}
