package limiter

import "sync"

// A TopKeys counts which keys were seen most often recently: in slices of time, each of
// which is a Sketch, so that what is older than all of them is forgotten. It is safe for
// concurrent use. With k counters it takes at most (32 + t) k bytes for each slice that is
// over, and some (80 + t) k for the one that is counted now, where t is the size of T;
// nothing before the first observation. NewTopKeys makes one.
type TopKeys[T any] struct {
	k int

	mu      sync.Mutex // guards what follows
	current *Sketch[T] // nil before the first observation
	number  int64      // of the slice that is counted now
	closed  []closedSlice[T]
}

// A closedSlice is a slice of time that is over.
type closedSlice[T any] struct {
	number int64
	keys   HeavyHitters[Key, T]
}

// NewTopKeys makes one of k counters that knows so many slices, the one that is counted
// now included: at least 1 each.
func NewTopKeys[T any](k, slices int) *TopKeys[T] {
	return &TopKeys[T]{k: k, closed: make([]closedSlice[T], max(slices-1, 0))}
}

// Observe counts k in the slice of that number; numbers grow with time. What comes late
// counts in the newest. When k gets a counter, fill writes what goes with it.
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

// startSliceLocked makes the slice of that number, or a later one, the one that is counted now.
func (t *TopKeys[T]) startSliceLocked(number int64) {
	switch {
	case t.current == nil:
		t.current, t.number = NewSketch[T](t.k), number
	case number > t.number:
		if len(t.closed) > 0 {
			t.closed[t.number%int64(len(t.closed))] = closedSlice[T]{t.number, t.current.HeavyHitters()}
		}
		t.current.Clear()
		t.number = number
	}
}

// Last is what was seen in the last n slices, that of the number now and those before:
// no more than are known.
func (t *TopKeys[T]) Last(now int64, n int) HeavyHitters[Key, T] {
	var all HeavyHitters[Key, T]
	for _, h := range t.slicesAfter(now - int64(min(n, len(t.closed)+1))) {
		all = all.Merge(h)
	}
	return all
}

// slicesAfter are the slices behind that number. They do not change any more, so that nobody
// who observes waits while they are merged.
func (t *TopKeys[T]) slicesAfter(before int64) (all []HeavyHitters[Key, T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.closed {
		if c.number > before && c.keys.Total > 0 { // one that was never used has none
			all = append(all, c.keys)
		}
	}
	if t.current != nil && t.number > before {
		all = append(all, t.current.HeavyHitters())
	}
	return all
}
