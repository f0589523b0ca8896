package limiter

import (
	"sync"
	"sync/atomic"
)

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
