package limiter

// An index finds the numbers of a slab by hashes: a hash table with open addressing
// and linear probing, 4 bytes a place. A place holds a number plus one and, in the
// bits that numbers do not need, a part of the hash, so that hardly any value of
// another hash is looked at.
//
// Numbers are smaller than the number of places, always: a slab gives the least
// numbers first, and no more of them than the index holds at its fullest.
type index struct {
	slots []uint32 // a power of two of them; 0 is an empty place
	used  int
}

// A probe is where a search has come to.
type probe struct {
	slot uint32
	item uint32 // what was found there, plus one; 0 at the end
}

// first begins a search for items of hash h.
func (x *index) first(h uint64) probe {
	if len(x.slots) == 0 {
		return probe{}
	}
	return x.from(h, uint32(h))
}

// next goes on with it.
func (x *index) next(h uint64, p probe) probe { return x.from(h, p.slot+1) }

func (x *index) from(h uint64, place uint32) probe {
	mask := uint32(len(x.slots) - 1)
	tag := uint32(h>>32) &^ mask
	for {
		place &= mask
		v := x.slots[place]
		if v == 0 || v&^mask == tag {
			return probe{place, v & mask}
		}
		place++
	}
}

// add adds item i under hash h. hashOf says which hash another item is under.
func (x *index) add(h uint64, i uint32, hashOf func(i uint32) uint64) {
	if 8*(x.used+1) > 7*len(x.slots) {
		x.grow(hashOf)
	}
	x.put(h, i)
	x.used++
}

func (x *index) put(h uint64, i uint32) {
	mask := uint32(len(x.slots) - 1)
	place := uint32(h) & mask
	for x.slots[place] != 0 {
		place = (place + 1) & mask
	}
	x.slots[place] = uint32(h>>32)&^mask | (i + 1)
}

// grow doubles the places.
func (x *index) grow(hashOf func(i uint32) uint64) {
	old, mask := x.slots, uint32(len(x.slots)-1)
	x.slots = make([]uint32, max(8, 2*len(old)))
	for _, v := range old {
		if v != 0 {
			i := v&mask - 1
			x.put(hashOf(i), i)
		}
	}
}

// remove removes what p has found. What was pushed on by it moves back, so that no
// search ends early.
func (x *index) remove(p probe, hashOf func(i uint32) uint64) {
	mask := uint32(len(x.slots) - 1)
	hole := p.slot
	for place := hole; ; {
		place = (place + 1) & mask
		v := x.slots[place]
		if v == 0 {
			break
		}
		home := uint32(hashOf(v&mask-1)) & mask
		if (place-home)&mask >= (place-hole)&mask {
			x.slots[hole] = v
			hole = place
		}
	}
	x.slots[hole] = 0
	x.used--
}
