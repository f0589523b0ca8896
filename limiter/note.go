package limiter

import "math"

// A note is what another store has said last of a key, and what this process had of it
// recently, in 40 bytes: enough to go on from, should that store be gone. Instead of
// each permit it has how many there were in each third of a horizon, so some of them
// come back up to a third of the horizon late, and none early. Times are milliseconds,
// 44 bits of them.
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
	granted [noteSlots]permits
}

const (
	noteSlots  = 4 // the third in which the last permit was granted, and those before
	noteBanned = 1 << 31
	noteBytes  = 48 // and its place in the index, as measured
	noteName   = 1<<48 - 1
	highBits   = 12
)

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
func (n *note) part() int64 { return (unpackHorizon(n.horizon) + noteSlots - 2) / (noteSlots - 1) }

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
		for i := 1; i < noteSlots; i++ {
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
		by = min(by, noteSlots)
		copy(n.granted[by:], n.granted[:noteSlots-by])
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
	begin := max(0, min(noteSlots-1, n.grantedAt()/n.part()-at/n.part()))
	for i := range int64(noteSlots) {
		if g := &n.granted[(begin+i)%noteSlots]; g.count() > 0 {
			back := min(count, g.count())
			g.add(-back)
			return back
		}
	}
	return 0
}

// say notes what the store has said: the part of this process in what is left, and how
// long to wait for cost permits.
func (n *note) say(left, wait, cost int64) {
	n.left = uint32(max(0, min(left, MaxCount)))
	n.set(n.grantedAt(), n.saidAt()+wait, cost)
}

// ban notes that the wait the store has said is the end of a ban.
func (n *note) ban() { n.left |= noteBanned }
