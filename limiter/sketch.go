package limiter

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// A Sketch counts the most frequent keys (heavy hitters) in bounded memory, by the
// space-saving algorithm (Metwally, Agrawal and El Abbadi: Efficient Computation of
// Frequent and Top-k Elements in Data Streams, 2005). With k counters and N observations:
//
//   - a key that was observed more than N/k times has a counter;
//   - a counter is at most N/k too high, never too low, and has a bound of its own error.
//
// Each counted key has a T, which the caller fills when the key gets its counter. An
// observation takes constant time and does not allocate. A Sketch must not be used
// concurrently.
type Sketch[T any] struct {
	counters []sketchCounter[T] // those in use
	groups   []sketchGroup      // those in use form a list, by ascending count
	lowest   int32
	unused   int32   // list of the other groups
	slots    []int32 // hash table with open addressing: 1 + the counter of a key; 0 for none
	shift    int     // shift from a hash to its slot
	seed     uint64
	total    int64
	evicted  bool // a key has lost its counter
}

// noIndex is an invalid counter or group.
const noIndex = int32(-1)

// A sketchCounter is the counter of one key.
type sketchCounter[T any] struct {
	key        Key
	over       int64 // bound of the error of its count
	group      int32
	prev, next int32 // in the group
	value      T
}

// A sketchGroup is the list of the counters with the same count.
type sketchGroup struct {
	count      int64
	first      int32 // of its counters
	prev, next int32 // groups with the next lower and next higher count
}

// NewSketch returns a Sketch with k counters, 1 to 16384.
func NewSketch[T any](k int) *Sketch[T] {
	k = min(max(k, 1), 1<<14)
	size := 1 << bits.Len(uint(2*k-1)) // at most half full, for short probes
	s := &Sketch[T]{
		counters: make([]sketchCounter[T], 0, k), groups: make([]sketchGroup, k+1),
		slots: make([]int32, size), shift: 64 - bits.TrailingZeros(uint(size)), seed: rand.Uint64() | 1,
	}
	s.Clear()
	return s
}

// Clear removes all counts.
func (s *Sketch[T]) Clear() {
	s.counters, s.total, s.evicted, s.lowest, s.unused = s.counters[:0], 0, false, noIndex, 0
	for i := range s.groups {
		s.groups[i] = sketchGroup{first: noIndex, next: int32(i) + 1}
	}
	s.groups[len(s.groups)-1].next = noIndex
	clear(s.slots)
}

// Total returns the number of observations.
func (s *Sketch[T]) Total() int64 { return s.total }

// Observe counts k once. If k has just got a counter, it returns its T for the caller to
// fill, which has the value of another key; otherwise it returns nil.
func (s *Sketch[T]) Observe(k Key) *T {
	s.total++
	slot := s.find(k)
	if at := s.slots[slot]; at != 0 {
		s.raise(at - 1)
		return nil
	}
	var c int32
	if len(s.counters) < cap(s.counters) {
		c = int32(len(s.counters))
		s.counters = append(s.counters, sketchCounter[T]{key: k, group: noIndex})
	} else {
		c, s.evicted = s.groups[s.lowest].first, true
		s.drop(s.find(s.counters[c].key))
		slot = s.find(k) // drop may have moved slots
		s.counters[c].key, s.counters[c].over = k, s.groups[s.lowest].count
	}
	s.slots[slot] = c + 1
	s.raise(c)
	return &s.counters[c].value
}

// home returns the first slot for k. It depends on a seed, so that clients cannot choose
// keys that collide.
func (s *Sketch[T]) home(k *Key) int {
	h := (binary.LittleEndian.Uint64(k[:8]) ^ binary.LittleEndian.Uint64(k[8:])>>1) * s.seed
	return int((h ^ h>>29) * 0x9e3779b97f4a7c15 >> s.shift)
}

// find returns the slot of k, or the free one for it.
func (s *Sketch[T]) find(k Key) int {
	slot := s.home(&k)
	for s.slots[slot] != 0 && s.counters[s.slots[slot]-1].key != k {
		slot = (slot + 1) & (len(s.slots) - 1)
	}
	return slot
}

// drop frees a slot, and moves later ones that would no longer be found.
func (s *Sketch[T]) drop(slot int) {
	mask := len(s.slots) - 1
	for at := (slot + 1) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		home := s.home(&s.counters[s.slots[at]-1].key)
		if (at-home)&mask >= (at-slot)&mask {
			s.slots[slot], slot = s.slots[at], at
		}
	}
	s.slots[slot] = 0
}

// raise increments the count of c, and moves it to the next group or a new one.
func (s *Sketch[T]) raise(c int32) {
	own := s.counters[c].group
	count, next := int64(1), s.lowest
	if own != noIndex {
		count, next = s.groups[own].count+1, s.groups[own].next
		if s.groups[own].first == c && s.counters[c].next == noIndex && (next == noIndex || s.groups[next].count != count) {
			s.groups[own].count = count // it is alone there
			return
		}
		s.leave(c, own)
	}
	if next == noIndex || s.groups[next].count != count {
		next = s.insert(count, own, next)
	}
	g, counter := &s.groups[next], &s.counters[c]
	counter.group, counter.prev, counter.next = next, noIndex, g.first
	if g.first != noIndex {
		s.counters[g.first].prev = c
	}
	g.first = c
	if own != noIndex && s.groups[own].first == noIndex {
		s.remove(own)
	}
}

// leave removes c from its group.
func (s *Sketch[T]) leave(c, own int32) {
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

// insert adds a group with this count between prev and next. There is one group more than
// counters, because prev may become empty only afterwards.
func (s *Sketch[T]) insert(count int64, prev, next int32) int32 {
	g := s.unused
	s.unused = s.groups[g].next
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

// remove removes an empty group from the list.
func (s *Sketch[T]) remove(g int32) {
	gone := s.groups[g]
	if gone.prev == noIndex {
		s.lowest = gone.next
	} else {
		s.groups[gone.prev].next = gone.next
	}
	if gone.next != noIndex {
		s.groups[gone.next].prev = gone.prev
	}
	s.groups[g] = sketchGroup{first: noIndex, next: s.unused}
	s.unused = g
}
