package limiter

import "sync"

// A TopKeys counts the most frequent keys of a recent period. It divides time into slices,
// each with a Sketch, and drops the oldest slice when a new one begins. It is safe for
// concurrent use. With k counters it takes at most (32 + t) k bytes for each closed slice,
// and about (80 + t) k for the current one, where t is the size of T; nothing before the
// first observation.
type TopKeys[T any] struct {
	k int

	mu     sync.Mutex // guards what follows
	now    *Sketch[T] // nil before the first observation
	number int64      // of the current slice
	closed []closedSlice[T]
}

// A closedSlice is a slice that has ended.
type closedSlice[T any] struct {
	number int64
	heavy  Heavy[Key, T]
}

// NewTopKeys returns a TopKeys with k counters and this many slices, including the current
// one; both must be at least 1.
func NewTopKeys[T any](k, slices int) *TopKeys[T] {
	return &TopKeys[T]{k: k, closed: make([]closedSlice[T], max(slices-1, 0))}
}

// Observe counts k in the slice with this number; numbers increase with time. Late
// observations count in the current slice. If k has just got a counter, fill sets its T.
func (t *TopKeys[T]) Observe(number int64, k Key, fill func(*T)) {
	t.mu.Lock()
	if t.number != number || t.now == nil {
		t.turnLocked(number)
	}
	if fresh := t.now.Observe(k); fresh != nil {
		fill(fresh)
	}
	t.mu.Unlock()
}

// turnLocked makes the slice with this number, or a later one, the current one.
func (t *TopKeys[T]) turnLocked(number int64) {
	switch {
	case t.now == nil:
		t.now, t.number = NewSketch[T](t.k), number
	case number > t.number:
		if len(t.closed) > 0 {
			t.closed[t.number%int64(len(t.closed))] = closedSlice[T]{t.number, t.now.Heavy()}
		}
		t.now.Clear()
		t.number = number
	}
}

// Last returns the counts of the last n slices before and including number now, as far as
// they are kept.
func (t *TopKeys[T]) Last(now int64, n int) Heavy[Key, T] {
	var all Heavy[Key, T]
	for _, h := range t.since(now - int64(min(n, len(t.closed)+1))) {
		all = all.Merge(h)
	}
	return all
}

// since returns the closed slices after that number. They are immutable, so that merging
// them does not block observations.
func (t *TopKeys[T]) since(before int64) (all []Heavy[Key, T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.closed {
		if c.number > before && c.heavy.Total > 0 { // unused slices are empty
			all = append(all, c.heavy)
		}
	}
	if t.now != nil && t.number > before {
		all = append(all, t.now.Heavy())
	}
	return all
}
