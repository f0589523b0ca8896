package limiter

import "math"

// A mirrorEntry is the last known state of a key in another store and what it recently
// granted to this process, in 40 bytes. It is enough to continue from if that store is
// unreachable. Instead of single permits it has their number in each third of a horizon.
// So some permits expire up to a third of the horizon late, and none early. Times are
// milliseconds in 44 bits.
//
// A key is identified by 48 bits of a hash, and by its shard. Two keys with the same
// bits, one pair in 10^16, count together.
type mirrorEntry struct {
	hashLow  uint32
	hashHigh uint16
	horizon  uint16 // in the form of packHorizon; 0 if the entry is free
	grantLow uint32 // low bits of grantedAt: the time of the last grant, or an earlier time
	waitLow  uint32 // low bits of waitUntil: the end of the refusal or ban
	// high has the 12 high bits of both times and, in 8 bits, the cost of the last claim,
	// at most 255.
	high         uint32
	repliedAfter uint32 // time from grantedAt to the last reply
	remaining    uint32 // this process's part of the remaining permits; the high bit means banned
	granted      [mirrorSlots]packedCount
}

const (
	mirrorSlots      = 4 // the third in which the last permit was granted, and those before it
	mirrorBanned     = 1 << 31
	mirrorEntryBytes = 48 // including its slot in the index, as measured
	mirrorHashMask   = 1<<48 - 1
	highBits         = 12
)

// indexHash returns the hash of the entry in the index. All its bits depend on the stored
// bits of the key's hash.
func (n *mirrorEntry) indexHash() uint64 { return spread(uint64(n.hashHigh)<<32 | uint64(n.hashLow)) }

func spread(h uint64) uint64 { return (h & mirrorHashMask) * 0x9e3779b97f4a7c15 }

func (n *mirrorEntry) grantedAt() int64 { return int64(n.high&(1<<highBits-1))<<32 | int64(n.grantLow) }

func (n *mirrorEntry) waitUntil() int64 {
	return int64(n.high>>highBits&(1<<highBits-1))<<32 | int64(n.waitLow)
}

func (n *mirrorEntry) cost() int64 { return int64(n.high >> (2 * highBits)) }

// setTimes sets grantedAt, waitUntil and cost.
func (n *mirrorEntry) setTimes(grantedAt, waitUntil, cost int64) {
	n.grantLow, n.waitLow = uint32(grantedAt), uint32(waitUntil)
	high := func(at int64) uint32 { return uint32(at>>32) & (1<<highBits - 1) }
	n.high = high(grantedAt) | high(waitUntil)<<highBits | uint32(min(cost, math.MaxUint8))<<(2*highBits)
}

// repliedAt returns the time of the store's last reply.
func (n *mirrorEntry) repliedAt() int64 { return n.grantedAt() + int64(n.repliedAfter) }

func (n *mirrorEntry) isBanned() bool { return n.remaining&mirrorBanned != 0 }

// slotWidth returns the length of the periods that permits are counted in.
func (n *mirrorEntry) slotWidth() int64 {
	return (unpackHorizon(n.horizon) + mirrorSlots - 2) / (mirrorSlots - 1)
}

// expiresAt returns the time at which n has no meaning any more.
func (n *mirrorEntry) expiresAt() int64 {
	return max(n.waitUntil(), n.repliedAt()+unpackHorizon(n.horizon))
}

// slotEnd returns the latest time at which a permit of slot i can have been granted. All
// permits of the slot count as granted then.
func (n *mirrorEntry) slotEnd(i int) int64 {
	last := n.grantedAt()
	if i == 0 {
		return last
	}
	return (last/n.slotWidth()-int64(i)+1)*n.slotWidth() - 1
}

// advance moves n to now, under a limit with this horizon. Permits that were counted
// under another horizon count as granted with the last of them.
func (n *mirrorEntry) advance(now int64, horizon uint16) {
	if n.horizon != horizon {
		n.horizon = horizon
		for i := 1; i < mirrorSlots; i++ {
			n.granted[0].add(n.granted[i].count())
			n.granted[i] = packedCount{}
		}
	}
	n.setRepliedAt(max(now, n.repliedAt())) // now is earlier if the clock was set back
}

// setRepliedAt sets the time of the last reply, which must not be before the previous
// one. If the last grant is longer ago than 32 bits can express, it counts as granted
// later.
func (n *mirrorEntry) setRepliedAt(at int64) {
	after := at - n.grantedAt()
	if after > math.MaxUint32 {
		n.moveTo(at - math.MaxUint32)
		after = math.MaxUint32
	}
	n.repliedAfter = uint32(after)
}

// grant records count permits that were granted with the last reply.
func (n *mirrorEntry) grant(count int64) {
	n.moveTo(n.repliedAt())
	n.repliedAfter = 0
	n.granted[0].add(count)
}

// moveTo sets the time of the last grant, and moves the counts to their new slots.
func (n *mirrorEntry) moveTo(at int64) {
	if by := at/n.slotWidth() - n.grantedAt()/n.slotWidth(); by > 0 {
		by = min(by, mirrorSlots)
		copy(n.granted[by:], n.granted[:mirrorSlots-by])
		clear(n.granted[:by])
	}
	n.setTimes(at, n.waitUntil(), n.cost())
}

// refund removes permits that were granted at the time at, from that slot or, if the
// clocks differ, from a near one. It returns how many were removed.
func (n *mirrorEntry) refund(at, count int64) int64 {
	if at <= n.repliedAt()-unpackHorizon(n.horizon) {
		return 0 // they have expired
	}
	begin := max(0, min(mirrorSlots-1, n.grantedAt()/n.slotWidth()-at/n.slotWidth()))
	for i := range int64(mirrorSlots) {
		if g := &n.granted[(begin+i)%mirrorSlots]; g.count() > 0 {
			refunded := min(count, g.count())
			g.add(-refunded)
			return refunded
		}
	}
	return 0
}

// setReply records the reply of the store: this process's part of the remaining permits,
// and the wait for cost permits.
func (n *mirrorEntry) setReply(remaining, wait, cost int64) {
	n.remaining = uint32(max(0, min(remaining, MaxCount)))
	n.setTimes(n.grantedAt(), n.repliedAt()+wait, cost)
}

// setBanned records that waitUntil is the end of a ban.
func (n *mirrorEntry) setBanned() { n.remaining |= mirrorBanned }
