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

// A probe is the state of a search.
type probe struct {
	slot uint32
	item uint32 // number that was found, plus one; 0 if there is no further one
}

// first starts a search for items of hash h.
func (x *index) first(h uint64) probe {
	if len(x.slots) == 0 {
		return probe{}
	}
	return x.from(h, uint32(h))
}

// next continues the search after p.
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

// add adds item i with hash h. hashOf returns the hash of another item.
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

// grow doubles the number of slots.
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

// remove removes the item that p has found. Items that were displaced by it move back, so
// that no search ends too early.
func (x *index) remove(p probe, hashOf func(i uint32) uint64) {
	mask := uint32(len(x.slots) - 1)
	hole := p.slot
	for place := hole; ; {
		place = (place + 1) & mask
		v := x.slots[place]
		if v == 0 {
			break
		}
		ideal := uint32(hashOf(v&mask-1)) & mask
		if (place-ideal)&mask >= (place-hole)&mask {
			x.slots[hole] = v
			hole = place
		}
	}
	x.slots[hole] = 0
	x.used--
}
