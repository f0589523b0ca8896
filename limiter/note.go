package limiter

import (
	"math"
	"math/bits"
)

// A note is what another store has said last of a key, and what this process had of it
// lately, in 40 bytes: enough to go on from, should that store be gone. Instead of each
// permit it has how many there were in each third of a horizon, so some of them come
// back up to a third of the horizon late, and none early. Times are milliseconds, 44
// bits of them.
//
// It knows its key by 48 bits of a hash, and by its shard. Two keys that have those in
// common, one pair in 10^16, count together.
type note struct {
	nameLow  uint32
	nameHigh uint16
	horizon  uint16 // as packHorizon has it; 0 for no note
	grantLow uint32 // when the last permit was granted, or something before all that count
	waitLow  uint32 // until when the store refused, or the key is banned
	// high has 12 bits more of both, and in 8 the cost of what was asked, or the most
	// there is room for.
	high    uint32
	after   uint32 // how long after the last permit the store was heard last
	left    uint32 // the part of this process in what the store had left, and banned
	granted [noteParts]permits
}

const (
	noteParts  = 4 // the third in which the last permit was granted, and those before
	noteBanned = 1 << 31
	noteBytes  = 48 // and its place in the index, as measured
	noteName   = 1<<48 - 1
	highBits   = 12
)

// permits is a number of them in 24 bits, of which the highest is more than any limit has.
type permits [3]byte

// tooMany is the largest number of permits.
const tooMany = 1<<24 - 1

func (p *permits) count() int64 {
	n := int64(p[0]) | int64(p[1])<<8 | int64(p[2])<<16
	if n == tooMany {
		return MaxCount
	}
	return n
}

// add adds n, which may be negative, except to too many.
func (p *permits) add(n int64) {
	if was := p.count(); was < tooMany {
		n = min(was+n, tooMany)
		p[0], p[1], p[2] = byte(n), byte(n>>8), byte(n>>16)
	}
}

// hash is what the index has it under: all of its bits depend on the name.
func (n *note) hash() uint64 { return spread(uint64(n.nameHigh)<<32 | uint64(n.nameLow)) }

func spread(h uint64) uint64 { return (h & noteName) * 0x9e3779b97f4a7c15 }

func (n *note) grantedAt() int64 { return int64(n.high&(1<<highBits-1))<<32 | int64(n.grantLow) }

func (n *note) waitsUntil() int64 {
	return int64(n.high>>highBits&(1<<highBits-1))<<32 | int64(n.waitLow)
}

func (n *note) cost() int64 { return int64(n.high >> (2 * highBits)) }

// set sets the times, and the cost.
func (n *note) set(grantedAt, waitsUntil, cost int64) {
	n.grantLow, n.waitLow = uint32(grantedAt), uint32(waitsUntil)
	high := func(at int64) uint32 { return uint32(at>>32) & (1<<highBits - 1) }
	n.high = high(grantedAt) | high(waitsUntil)<<highBits | uint32(min(cost, math.MaxUint8))<<(2*highBits)
}

// saidAt is when the store was heard last.
func (n *note) saidAt() int64 { return n.grantedAt() + int64(n.after) }

func (n *note) banned() bool { return n.left&noteBanned != 0 }

// part is the width of the parts that permits are counted in.
func (n *note) part() int64 { return (unpackHorizon(n.horizon) + noteParts - 2) / (noteParts - 1) }

// until is when all that n says is over.
func (n *note) until() int64 {
	return max(n.waitsUntil(), n.saidAt()+unpackHorizon(n.horizon))
}

// grantsAt is when so many permits of part i count as granted: the last moment at which
// one of them can have been.
func (n *note) grantsAt(i int) int64 {
	last := n.grantedAt()
	if i == 0 {
		return last
	}
	return (last/n.part()-int64(i)+1)*n.part() - 1
}

// advance brings n to now, under a limit of that horizon. Permits that were counted under
// another one count as granted with the last of them.
func (n *note) advance(now int64, horizon uint16) {
	if n.horizon != horizon {
		n.horizon = horizon
		for i := 1; i < noteParts; i++ {
			n.granted[0].add(n.granted[i].count())
			n.granted[i] = permits{}
		}
	}
	n.hear(max(now, n.saidAt())) // or the clock was set back
}

// hear notes that the store is heard at the time at, no earlier than before. What has not
// happened for longer than 32 bits tell counts as having happened since.
func (n *note) hear(at int64) {
	after := at - n.grantedAt()
	if after > math.MaxUint32 {
		n.moveTo(at - math.MaxUint32)
		after = math.MaxUint32
	}
	n.after = uint32(after)
}

// grant notes that so many permits were granted when the store was heard.
func (n *note) grant(count int64) {
	n.moveTo(n.saidAt())
	n.after = 0
	n.granted[0].add(count)
}

// moveTo makes the last permit one of the time at.
func (n *note) moveTo(at int64) {
	if by := at/n.part() - n.grantedAt()/n.part(); by > 0 {
		by = min(by, noteParts)
		copy(n.granted[by:], n.granted[:noteParts-by])
		clear(n.granted[:by])
	}
	n.set(at, n.waitsUntil(), n.cost())
}

// giveBack takes permits out that were granted at the time at: of that part, or of one
// near it if the clocks differ.
func (n *note) giveBack(at, count int64) int64 {
	if at <= n.saidAt()-unpackHorizon(n.horizon) {
		return 0 // they have come back already
	}
	begin := max(0, min(noteParts-1, n.grantedAt()/n.part()-at/n.part()))
	for i := range int64(noteParts) {
		if g := &n.granted[(begin+i)%noteParts]; g.count() > 0 {
			back := min(count, g.count())
			g.add(-back)
			return back
		}
	}
	return 0
}

// say notes what the store has said: the part of this process in what is left, and how
// long to wait for cost permits.
func (n *note) say(left, wait, cost int64, banned bool) {
	n.left = uint32(max(0, min(left, MaxCount)))
	if banned {
		n.left |= noteBanned
	}
	n.set(n.grantedAt(), n.saidAt()+wait, cost)
}

// packHorizon keeps the 11 highest bits of a horizon and its length in bits: rounded up,
// by a thousandth at most.
func packHorizon(ms int64) uint16 {
	shift := max(0, bits.Len64(uint64(ms))-11)
	ms = (ms + 1<<shift - 1) >> shift
	if ms >= 1<<11 {
		ms, shift = ms>>1, shift+1
	}
	return uint16(shift<<11) | uint16(ms)
}

func unpackHorizon(packed uint16) int64 { return int64(packed&(1<<11-1)) << (packed >> 11) }

// notes are those of one shard. They have the shard's lock.
type notes struct {
	slab   slab[note]
	index  index
	oldest uint32 // where the sweep goes on
}

func (n *notes) hashOf(i uint32) uint64 { return n.slab.at(i).hash() }

// find is where the note of a key is whose hash is h; a probe without an item if there
// is none.
func (n *notes) find(h uint64) probe {
	h = spread(h)
	p := n.index.first(h)
	for p.item > 0 && n.hashOf(p.item-1) != h {
		p = n.index.next(h, p)
	}
	return p
}

// has reports whether there is a note of hash h. It costs nothing where there are none.
func (n *notes) has(h uint64) bool { return n.index.used > 0 && n.find(h).item > 0 }

// add makes the note of hash h.
func (n *notes) add(h uint64, now int64, horizon uint16) *note {
	i := n.slab.add()
	at := n.slab.at(i)
	*at = newNote(now, horizon)
	at.nameLow, at.nameHigh = uint32(h), uint16(h>>32)
	n.index.add(at.hash(), i, n.hashOf)
	return at
}

func newNote(now int64, horizon uint16) (n note) {
	n.horizon = horizon
	n.set(now, 0, 0)
	return n
}

// remove takes the note out that p has found.
func (n *notes) remove(p probe) note {
	was := *n.slab.at(p.item - 1)
	n.index.remove(p, n.hashOf)
	n.slab.remove(p.item - 1)
	return was
}

// sweep looks at the next count notes, forgets those that are over, and returns how many.
func (n *notes) sweep(now int64, count uint32) (gone int64) {
	for range min(count, n.slab.used) {
		if n.oldest >= n.slab.used {
			n.oldest = 0
		}
		if at := n.slab.at(n.oldest); at.horizon != 0 && at.until() <= now {
			n.remove(n.find(uint64(at.nameHigh)<<32 | uint64(at.nameLow)))
			gone++
		}
		n.oldest++
	}
	return gone
}
