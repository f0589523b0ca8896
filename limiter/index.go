package limiter

// An index maps hashes to numbers of a slab: a hash table with open addressing and linear
// probing, 4 bytes per slot. A slot holds a number plus one and, in the unused bits, a part
// of the hash, so that values with other hashes are rarely compared.
//
// Numbers are always smaller than the number of slots, because a slab assigns the smallest
// free number.
type index struct {
	places []uint32 // the slots; their number is a power of two, 0 is empty
	used   int
}

// A probe is the position of a search.
type probe struct {
	place uint32
	item  uint32 // what was found there, plus one; 0 at the end
}

// first starts a search for items with hash h.
func (x *index) first(h uint64) probe {
	if len(x.places) == 0 {
		return probe{}
	}
	return x.from(h, uint32(h))
}

// next continues a search.
func (x *index) next(h uint64, p probe) probe { return x.from(h, p.place+1) }

func (x *index) from(h uint64, place uint32) probe {
	mask := uint32(len(x.places) - 1)
	tag := uint32(h>>32) &^ mask
	for {
		place &= mask
		v := x.places[place]
		if v == 0 || v&^mask == tag {
			return probe{place, v & mask}
		}
		place++
	}
}

// add adds item i with hash h. hashOf returns the hash of another item.
func (x *index) add(h uint64, i uint32, hashOf func(i uint32) uint64) {
	if 8*(x.used+1) > 7*len(x.places) {
		x.grow(hashOf)
	}
	x.put(h, i)
	x.used++
}

func (x *index) put(h uint64, i uint32) {
	mask := uint32(len(x.places) - 1)
	place := uint32(h) & mask
	for x.places[place] != 0 {
		place = (place + 1) & mask
	}
	x.places[place] = uint32(h>>32)&^mask | (i + 1)
}

// grow doubles the number of slots.
func (x *index) grow(hashOf func(i uint32) uint64) {
	old, mask := x.places, uint32(len(x.places)-1)
	x.places = make([]uint32, max(8, 2*len(old)))
	for _, v := range old {
		if v != 0 {
			i := v&mask - 1
			x.put(hashOf(i), i)
		}
	}
}

// remove removes the item at p, and moves later items back, so that searches still find
// them.
func (x *index) remove(p probe, hashOf func(i uint32) uint64) {
	mask := uint32(len(x.places) - 1)
	hole := p.place
	for place := hole; ; {
		place = (place + 1) & mask
		v := x.places[place]
		if v == 0 {
			break
		}
		home := uint32(hashOf(v&mask-1)) & mask
		if (place-home)&mask >= (place-hole)&mask {
			x.places[hole] = v
			hole = place
		}
	}
	x.places[hole] = 0
	x.used--
}
