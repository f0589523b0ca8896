package limiter

// An index finds the numbers of a slab's values by hash. It is a hash table with open
// addressing and linear probing, 4 bytes a slot. A slot holds a number plus one and, in
// the bits that numbers do not need, a part of the hash, so that values with another hash
// are rarely compared.
//
// Numbers are always smaller than the number of slots: a slab returns the smallest number
// first, and never more of them than the index can hold.
type index struct {
	slots []uint32 // a power of two of them; 0 is an empty slot
	used  int
}

// A probe is the result of a search.
type probe struct {
	slot uint32
	item uint32 // number that was found, plus one; 0 if there is none
}

// find finds the item of hash h for which is returns true.
func (i *index) find(h uint64, is func(item uint32) bool) probe {
	if len(i.slots) == 0 {
		return probe{}
	}
	mask := uint32(len(i.slots) - 1)
	tag := uint32(h>>32) &^ mask
	for place := uint32(h) & mask; ; place = (place + 1) & mask {
		if v := i.slots[place]; v == 0 || v&^mask == tag && is(v&mask-1) {
			return probe{place, v & mask}
		}
	}
}

// add adds an item with hash h. hashOf returns the hash of another item.
func (i *index) add(h uint64, item uint32, hashOf func(item uint32) uint64) {
	if 8*(i.used+1) > 7*len(i.slots) {
		i.grow(hashOf)
	}
	i.put(h, item)
	i.used++
}

func (i *index) put(h uint64, item uint32) {
	mask := uint32(len(i.slots) - 1)
	place := uint32(h) & mask
	for i.slots[place] != 0 {
		place = (place + 1) & mask
	}
	i.slots[place] = uint32(h>>32)&^mask | (item + 1)
}

// grow doubles the number of slots.
func (i *index) grow(hashOf func(item uint32) uint64) {
	old, mask := i.slots, uint32(len(i.slots)-1)
	i.slots = make([]uint32, max(8, 2*len(old)))
	for _, v := range old {
		if v != 0 {
			item := v&mask - 1
			i.put(hashOf(item), item)
		}
	}
}

// remove removes the item that p has found. Items that were displaced by it move back, so
// that no search ends too early.
func (i *index) remove(p probe, hashOf func(item uint32) uint64) {
	mask := uint32(len(i.slots) - 1)
	hole := p.slot
	for place := hole; ; {
		place = (place + 1) & mask
		v := i.slots[place]
		if v == 0 {
			break
		}
		ideal := uint32(hashOf(v&mask-1)) & mask
		if (place-ideal)&mask >= (place-hole)&mask {
			i.slots[hole] = v
			hole = place
		}
	}
	i.slots[hole] = 0
	i.used--
}

// A slab allocates values of one type and identifies each by a number until it is
// removed. It grows by one chunk at a time, so that growing copies nothing and leaves no
// garbage; it never shrinks. The garbage collector does not scan values without pointers.
type slab[T any] struct {
	chunks []*[chunkSize]T
	used   uint32   // numbers that were ever allocated
	free   []uint32 // removed numbers, for reuse
}

// chunkSize is the number of values in a chunk.
const chunkSize = 128

// at returns the value of number i.
func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/chunkSize][i%chunkSize] }

// add allocates a number. Its value is zero.
func (s *slab[T]) add() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used/chunkSize == uint32(len(s.chunks)) {
		s.chunks = append(s.chunks, new([chunkSize]T))
	}
	s.used++
	return s.used - 1
}

// remove frees a number and clears its value.
func (s *slab[T]) remove(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}
