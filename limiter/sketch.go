package limiter

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// A Sketch counts keys in bounded memory: those seen most often, by the space-saving
// algorithm (Metwally, Agrawal and El Abbadi: Efficient Computation of Frequent and
// Top-k Elements in Data Streams, 2005). Of k counters and N observations:
//
//   - a key that was seen more than N/k times has a counter;
//   - a counter says at most N/k too much, never too little, and tells by how much it
//     may be wrong.
//
// With each counted key goes a T, which the caller fills when the key gets its counter.
// An observation takes the same few steps whatever is counted, and does not allocate. A
// Sketch is for one goroutine at a time; NewSketch makes one.
type Sketch[T any] struct {
	counters  []sketchCounter[T] // as many as are in use
	groups    []sketchGroup      // those in use are a list, from the lowest count on
	lowest    int32
	freeGroup int32   // a list of the other groups
	slots     []int32 // an open-addressed table: 1 + the counter of a key; 0 for none
	shift     int     // of a hash, to its slot
	seed      uint64
	total     int64
	evicted   bool // some key has lost its counter
}

// noIndex is no counter, and no group.
const noIndex = int32(-1)

// A sketchCounter is the counter of one key.
type sketchCounter[T any] struct {
	key        Key
	maxError   int64 // at most so much of its count is others'
	group      int32
	prev, next int32 // in the group
	value      T
}

// A sketchGroup is the counters that have one count.
type sketchGroup struct {
	count      int64
	first      int32 // of its counters
	prev, next int32 // the next lower count, and the next higher one
}

// NewSketch makes a Sketch of k counters, 1 to 16384.
func NewSketch[T any](k int) *Sketch[T] {
	k = min(max(k, 1), 1<<14)
	size := 1 << bits.Len(uint(2*k-1)) // at most half full, so that probing is short
	s := &Sketch[T]{
		counters: make([]sketchCounter[T], 0, k), groups: make([]sketchGroup, k+1),
		slots: make([]int32, size), shift: 64 - bits.TrailingZeros(uint(size)), seed: rand.Uint64() | 1,
	}
	s.Clear()
	return s
}

// Clear forgets everything.
func (s *Sketch[T]) Clear() {
	s.counters, s.total, s.evicted, s.lowest, s.freeGroup = s.counters[:0], 0, false, noIndex, 0
	for i := range s.groups {
		s.groups[i] = sketchGroup{first: noIndex, next: int32(i) + 1}
	}
	s.groups[len(s.groups)-1].next = noIndex
	clear(s.slots)
}

// Total is how many observations there were.
func (s *Sketch[T]) Total() int64 { return s.total }

// Observe counts k once more. It returns what goes with k where k has just got a counter,
// for the caller to fill: what is there is another key's. Otherwise it returns nil.
func (s *Sketch[T]) Observe(k Key) *T {
	s.total++
	slot := s.findSlot(k)
	if at := s.slots[slot]; at != 0 {
		s.increment(at - 1)
		return nil
	}
	var c int32
	if len(s.counters) < cap(s.counters) {
		c = int32(len(s.counters))
		s.counters = append(s.counters, sketchCounter[T]{key: k, group: noIndex})
	} else {
		c, s.evicted = s.groups[s.lowest].first, true
		s.freeSlot(s.findSlot(s.counters[c].key))
		slot = s.findSlot(k) // dropping may have moved what was in the way
		s.counters[c].key, s.counters[c].maxError = k, s.groups[s.lowest].count
	}
	s.slots[slot] = c + 1
	s.increment(c)
	return &s.counters[c].value
}

// homeSlot is where the search for k begins. Clients can choose their keys, but do not know
// the seed.
func (s *Sketch[T]) homeSlot(k *Key) int {
	h := (binary.LittleEndian.Uint64(k[:8]) ^ binary.LittleEndian.Uint64(k[8:])>>1) * s.seed
	return int((h ^ h>>29) * 0x9e3779b97f4a7c15 >> s.shift)
}

// findSlot is the slot of k, or the free one where it would be.
func (s *Sketch[T]) findSlot(k Key) int {
	slot := s.homeSlot(&k)
	for s.slots[slot] != 0 && s.counters[s.slots[slot]-1].key != k {
		slot = (slot + 1) & (len(s.slots) - 1)
	}
	return slot
}

// freeSlot frees a slot and moves those behind it that would not be found any more.
func (s *Sketch[T]) freeSlot(slot int) {
	mask := len(s.slots) - 1
	for at := (slot + 1) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		home := s.homeSlot(&s.counters[s.slots[at]-1].key)
		if (at-home)&mask >= (at-slot)&mask {
			s.slots[slot], slot = s.slots[at], at
		}
	}
	s.slots[slot] = 0
}

// increment makes the count of c one higher: it goes to the next group, or to a new one.
func (s *Sketch[T]) increment(c int32) {
	own := s.counters[c].group
	count, next := int64(1), s.lowest
	if own != noIndex {
		count, next = s.groups[own].count+1, s.groups[own].next
		if s.groups[own].first == c && s.counters[c].next == noIndex && (next == noIndex || s.groups[next].count != count) {
			s.groups[own].count = count // it is alone there
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

// unlink takes c out of its group, which may be empty then.
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

// insertGroup makes a group with that count between prev and next. There is one group more
// than counters, for the moment in which prev is about to be empty.
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

// removeGroup takes an empty group out of the list.
func (s *Sketch[T]) removeGroup(g int32) {
	gone := s.groups[g]
	if gone.prev == noIndex {
		s.lowest = gone.next
	} else {
		s.groups[gone.prev].next = gone.next
	}
	if gone.next != noIndex {
		s.groups[gone.next].prev = gone.prev
	}
	s.groups[g] = sketchGroup{first: noIndex, next: s.freeGroup}
	s.freeGroup = g
}
