package redisstore

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A denialCache is a set-associative cache of denials: each slot belongs to one of many
// small sets. Where a set is full, the denial that was asked for longest ago makes room; it
// is the first to become useless. So a lookup takes no lock and reads one set.
type denialCache struct {
	sets     []atomic.Pointer[denialSet] // nil until a denial is added
	ways     int                         // number of entries of a set that are used
	seed     [2]uint64                   // so that clients cannot choose keys of the same set
	textSeed maphash.Seed
}

// A denialSet has the denials of some slots; nil is a free entry.
type denialSet [8]atomic.Pointer[denial]

// newDenialCache returns a cache of at most size denials.
func newDenialCache(size int) denialCache {
	ways := min(size, len(denialSet{}))
	return denialCache{
		sets: make([]atomic.Pointer[denialSet], size/ways), ways: ways,
		seed: [2]uint64{rand.Uint64(), rand.Uint64()}, textSeed: maphash.MakeSeed(),
	}
}

// set returns where the set of s is.
func (n *denialCache) set(s *slot) *atomic.Pointer[denialSet] {
	high, low := bits.Mul64(binary.LittleEndian.Uint64(s.key[:8])^n.seed[0], binary.LittleEndian.Uint64(s.key[8:])^n.seed[1])
	hash := high ^ low
	if s.redisson != "" {
		hash = maphash.String(n.textSeed, s.redisson)
	}
	i, _ := bits.Mul64(hash, uint64(len(n.sets)))
	return &n.sets[i]
}

// find returns a denial that refuses c, whatever its age; nil if there is none.
func (n *denialCache) find(c *limiter.Claim) *denial {
	s := slotOf(c)
	set := n.set(&s).Load()
	if set == nil {
		return nil
	}
	for i := range set {
		if d := set[i].Load(); d != nil && d.slot == s && d.refuses(c) {
			return d
		}
	}
	return nil
}

// refuses reports whether d, which is in the slot of c, refuses c.
func (d *denial) refuses(c *limiter.Claim) bool {
	return c.Cost >= d.cost && isSameWindow(d.limit, c) && sameLimit(d.limit, c.Limit)
}

// add adds d, in place of an older denial of its window if there is one, and returns its
// entry.
func (n *denialCache) add(d *denial) *atomic.Pointer[denial] {
	at := n.set(&d.slot)
	if at.Load() == nil {
		at.CompareAndSwap(nil, new(denialSet))
	}
	set := at.Load()
	place, oldest := &set[0], noExpiry
	for i := range set[:n.ways] {
		other, asked := set[i].Load(), time.Duration(math.MinInt64)
		if other != nil {
			if asked = other.askedAt; other.slot == d.slot && other.window() == d.window() {
				place = &set[i]
				break
			}
		}
		if asked < oldest {
			place, oldest = &set[i], asked
		}
	}
	place.Store(d)
	return place
}

// remove removes the denials of a window; concurrent calls of add may have added several.
func (n *denialCache) remove(id windowID) {
	set := n.set(&id.slot).Load()
	if set == nil {
		return
	}
	for i := range set {
		if d := set[i].Load(); d != nil && d.window() == id {
			set[i].CompareAndSwap(d, nil)
		}
	}
}

// clear removes all denials.
func (n *denialCache) clear() {
	for i := range n.sets {
		if set := n.sets[i].Load(); set != nil {
			for j := range set {
				set[j].Store(nil)
			}
		}
	}
}

// window returns the window of d.
func (d *denial) window() windowID {
	if d.slot.redisson != "" {
		return windowID{slot: d.slot}
	}
	return windowID{d.limit.Name, d.limit.Algorithm, d.limit.Scope, d.slot}
}
