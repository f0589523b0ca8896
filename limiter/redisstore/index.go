package redisstore

import (
	"encoding/binary"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A windowID is whose window of what.
type windowID struct {
	limit     string
	algorithm limiter.Algorithm
	scope     limiter.Scope
	slot      slot
}

// A slot is what lies in one slot of a cluster: a key, or the keys of one limiter
// that Redisson shares.
type slot struct {
	key      limiter.Key
	redisson string
}

func slotOf(c limiter.Claim) slot {
	if c.RedissonName != "" {
		return slot{redisson: c.RedissonName}
	}
	return slot{key: c.Key}
}

// windowIDOf is one for all claims that name a limiter of Redisson's: its config decides.
func windowIDOf(c limiter.Claim) windowID {
	if c.RedissonName != "" {
		return windowID{slot: slotOf(c)}
	}
	return windowID{c.Limit.Name, c.Limit.Algorithm, c.Limit.Scope, slotOf(c)}
}

func sameLimit(a, b *limiter.Limit) bool {
	return a == b || a.Rate == b.Rate && a.Burst == b.Burst && slices.Equal(a.Steps, b.Steps)
}

// indexSize is a power of two, and several times maxClaims.
const indexSize = 512

// A windowIndex finds the windows of a batch by their slots: an open hash table that is
// used again. It holds no more than maxClaims.
type windowIndex struct {
	table   [indexSize]uint16 // 1 + the place in all; 0: none
	windows []batchedWindow
}

// batchedWindow is a window in the script call that it travels in.
type batchedWindow struct {
	limit    *limiter.Limit
	slot     slot
	batch    *slotBatch
	number   int // counted from 1
	firstKey int // number of its first key
}

func (x *windowIndex) reset() {
	clear(x.table[:])
	clear(x.windows)
	x.windows = x.windows[:0]
}

// A lookup is what an index knows of a claim's window; nil where it knows nothing.
type lookup struct {
	window    *batchedWindow // this very window
	box       *batchedWindow // one that lies in the same key
	neighbour *batchedWindow // one in the same slot
}

func (x *windowIndex) find(c *limiter.Claim) (f lookup) {
	s := slotOf(*c)
	for i := s.hash(); x.table[i%indexSize] != 0; i++ {
		w := &x.windows[x.table[i%indexSize]-1]
		if w.slot != s {
			continue
		}
		f.neighbour = w
		if w.matches(c) {
			f.window = w
			return f
		}
		if f.box == nil && sameBox(w.limit, c.Limit) {
			f.box = w
		}
	}
	return f
}

// add appends a window that find does not find.
func (x *windowIndex) add(w batchedWindow) {
	i := w.slot.hash()
	for x.table[i%indexSize] != 0 {
		i++
	}
	x.windows = append(x.windows, w)
	x.table[i%indexSize] = uint16(len(x.windows))
}

// matches reports whether w, which lies in the slot of c, is the window of c.
func (w *batchedWindow) matches(c *limiter.Claim) bool {
	if c.RedissonName != "" || w.limit == c.Limit {
		return true
	}
	return w.limit.Algorithm == c.Limit.Algorithm && w.limit.Scope == c.Limit.Scope && w.limit.Name == c.Limit.Name
}

// sameBox reports whether the windows that two limits have of one key lie in one
// string.
func sameBox(a, b *limiter.Limit) bool {
	if a.Algorithm != b.Algorithm || a.Scope != b.Scope || !isPacked(a.Algorithm) {
		return false
	}
	boxA, _ := splitName(a.Name)
	boxB, _ := splitName(b.Name)
	return boxA == boxB
}

// hash is of what spreads by itself: keys are hashes already, and names are few.
func (s slot) hash() uint64 {
	h := binary.LittleEndian.Uint64(s.key[:])
	for i := range len(s.redisson) {
		h = 31*h + uint64(s.redisson[i])
	}
	return h ^ h>>32
}
