package limiter

import "math"

// A mirrorEntry is what another store has said last of a key, and what this process had of it
// recently, in 40 bytes: enough to go on from, should that store be gone. Instead of
// each permit it has how many there were in each third of a horizon, so some of them
// come back up to a third of the horizon late, and none early. Times are milliseconds,
// 44 bits of them.
//
// It knows its key by 48 bits of a hash, and by its shard. Two keys that have those in
// common, one pair in 10^16, count together.
type mirrorEntry struct {
	hashLow  uint32
	hashHigh uint16
	horizon  uint16 // as packHorizon has it; 0 for no note
	grantLow uint32 // when the last permit was granted, or something before all that count
	waitLow  uint32 // until when the store refused, or the key is banned
	// high has 12 bits more of both, and in 8 the cost of what was asked, or the most
	// there is room for.
	high         uint32
	repliedAfter uint32 // how long after the last permit the store was heard last
	remaining    uint32 // the part of this process in what the store had left, and banned
	granted      [mirrorSlots]packedCount
}

const (
	mirrorSlots      = 4 // the third in which the last permit was granted, and those before
	mirrorBanned     = 1 << 31
	mirrorEntryBytes = 48 // and its place in the index, as measured
	mirrorHashMask   = 1<<48 - 1
	highBits         = 12
)

// indexHash is what the index has it under: all of its bits depend on the name.
func (n *mirrorEntry) indexHash() uint64 { return spread(uint64(n.hashHigh)<<32 | uint64(n.hashLow)) }

func spread(h uint64) uint64 { return (h & mirrorHashMask) * 0x9e3779b97f4a7c15 }

func (n *mirrorEntry) grantedAt() int64 { return int64(n.high&(1<<highBits-1))<<32 | int64(n.grantLow) }

func (n *mirrorEntry) waitUntil() int64 {
	return int64(n.high>>highBits&(1<<highBits-1))<<32 | int64(n.waitLow)
}

func (n *mirrorEntry) cost() int64 { return int64(n.high >> (2 * highBits)) }

// setTimes sets the times, and the cost.
func (n *mirrorEntry) setTimes(grantedAt, waitsUntil, cost int64) {
	n.grantLow, n.waitLow = uint32(grantedAt), uint32(waitsUntil)
	high := func(at int64) uint32 { return uint32(at>>32) & (1<<highBits - 1) }
	n.high = high(grantedAt) | high(waitsUntil)<<highBits | uint32(min(cost, math.MaxUint8))<<(2*highBits)
}

// repliedAt is when the store was heard last.
func (n *mirrorEntry) repliedAt() int64 { return n.grantedAt() + int64(n.repliedAfter) }

func (n *mirrorEntry) isBanned() bool { return n.remaining&mirrorBanned != 0 }

// slotWidth is the width of the parts that permits are counted in.
func (n *mirrorEntry) slotWidth() int64 {
	return (unpackHorizon(n.horizon) + mirrorSlots - 2) / (mirrorSlots - 1)
}

// expiresAt is when all that n says is over.
func (n *mirrorEntry) expiresAt() int64 {
	return max(n.waitUntil(), n.repliedAt()+unpackHorizon(n.horizon))
}

// slotEnd is when so many permits of part i count as granted: the last moment at which
// one of them can have been.
func (n *mirrorEntry) slotEnd(i int) int64 {
	last := n.grantedAt()
	if i == 0 {
		return last
	}
	return (last/n.slotWidth()-int64(i)+1)*n.slotWidth() - 1
}

// advance brings n to now, under a limit of that horizon. Permits that were counted under
// another one count as granted with the last of them.
func (n *mirrorEntry) advance(now int64, horizon uint16) {
	if n.horizon != horizon {
		n.horizon = horizon
		for i := 1; i < mirrorSlots; i++ {
			n.granted[0].add(n.granted[i].count())
			n.granted[i] = packedCount{}
		}
	}
	n.setRepliedAt(max(now, n.repliedAt())) // or the clock was set back
}

// setRepliedAt notes that the store is heard at the time at, no earlier than before. What has not
// happened for longer than 32 bits tell counts as having happened since.
func (n *mirrorEntry) setRepliedAt(at int64) {
	after := at - n.grantedAt()
	if after > math.MaxUint32 {
		n.moveTo(at - math.MaxUint32)
		after = math.MaxUint32
	}
	n.repliedAfter = uint32(after)
}

// grant notes that so many permits were granted when the store was heard.
func (n *mirrorEntry) grant(count int64) {
	n.moveTo(n.repliedAt())
	n.repliedAfter = 0
	n.granted[0].add(count)
}

// moveTo makes the last permit one of the time at.
func (n *mirrorEntry) moveTo(at int64) {
	if by := at/n.slotWidth() - n.grantedAt()/n.slotWidth(); by > 0 {
		by = min(by, mirrorSlots)
		copy(n.granted[by:], n.granted[:mirrorSlots-by])
		clear(n.granted[:by])
	}
	n.setTimes(at, n.waitUntil(), n.cost())
}

// refund takes permits out that were granted at the time at: of that part, or of one
// near it if the clocks differ.
func (n *mirrorEntry) refund(at, count int64) int64 {
	if at <= n.repliedAt()-unpackHorizon(n.horizon) {
		return 0 // they have come back already
	}
	begin := max(0, min(mirrorSlots-1, n.grantedAt()/n.slotWidth()-at/n.slotWidth()))
	for i := range int64(mirrorSlots) {
		if g := &n.granted[(begin+i)%mirrorSlots]; g.count() > 0 {
			back := min(count, g.count())
			g.add(-back)
			return back
		}
	}
	return 0
}

// setReply notes what the store has said: the part of this process in what is left, and how
// long to wait for cost permits.
func (n *mirrorEntry) setReply(left, wait, cost int64) {
	n.remaining = uint32(max(0, min(left, MaxCount)))
	n.setTimes(n.grantedAt(), n.repliedAt()+wait, cost)
}

// setBanned notes that the wait the store has said is the end of a ban.
func (n *mirrorEntry) setBanned() { n.remaining |= mirrorBanned }
