package limiter

import (
	"math"
	"math/bits"
)

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
	used         uint32 // permits that were taken of the limit, by all processes; the high bit means banned
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
func (e *mirrorEntry) indexHash() uint64 { return spread(uint64(e.hashHigh)<<32 | uint64(e.hashLow)) }

func spread(h uint64) uint64 { return (h & mirrorHashMask) * 0x9e3779b97f4a7c15 }

func (e *mirrorEntry) grantedAt() int64 { return int64(e.high&(1<<highBits-1))<<32 | int64(e.grantLow) }

func (e *mirrorEntry) waitUntil() int64 {
	return int64(e.high>>highBits&(1<<highBits-1))<<32 | int64(e.waitLow)
}

func (e *mirrorEntry) cost() int64 { return int64(e.high >> (2 * highBits)) }

// setTimes sets grantedAt, waitUntil and cost.
func (e *mirrorEntry) setTimes(grantedAt, waitUntil, cost int64) {
	e.grantLow, e.waitLow = uint32(grantedAt), uint32(waitUntil)
	high := func(at int64) uint32 { return uint32(at>>32) & (1<<highBits - 1) }
	e.high = high(grantedAt) | high(waitUntil)<<highBits | uint32(min(cost, math.MaxUint8))<<(2*highBits)
}

// repliedAt returns the time of the store's last reply.
func (e *mirrorEntry) repliedAt() int64 { return e.grantedAt() + int64(e.repliedAfter) }

func (e *mirrorEntry) isBanned() bool { return e.used&mirrorBanned != 0 }

// slotWidth returns the length of the periods that permits are counted in.
func (e *mirrorEntry) slotWidth() int64 {
	return (unpackHorizon(e.horizon) + mirrorSlots - 2) / (mirrorSlots - 1)
}

// expiresAt returns the time at which e has no meaning any more.
func (e *mirrorEntry) expiresAt() int64 {
	return max(e.waitUntil(), e.repliedAt()+unpackHorizon(e.horizon))
}

// slotEnd returns the latest time at which a permit of slot i can have been granted. All
// permits of the slot count as granted then.
func (e *mirrorEntry) slotEnd(i int) int64 {
	last := e.grantedAt()
	if i == 0 {
		return last
	}
	return (last/e.slotWidth()-int64(i)+1)*e.slotWidth() - 1
}

// advance moves e to now, under a limit with this horizon. Permits that were counted
// under another horizon count as granted with the last of them.
func (e *mirrorEntry) advance(now int64, horizon uint16) {
	if e.horizon != horizon {
		e.horizon = horizon
		for i := 1; i < mirrorSlots; i++ {
			e.granted[0].add(e.granted[i].count())
			e.granted[i] = packedCount{}
		}
	}
	e.setRepliedAt(max(now, e.repliedAt())) // now is earlier if the clock was set back
}

// setRepliedAt sets the time of the last reply, which must not be before the previous
// one. If the last grant is longer ago than 32 bits can express, it counts as granted
// later.
func (e *mirrorEntry) setRepliedAt(at int64) {
	after := at - e.grantedAt()
	if after > math.MaxUint32 {
		e.moveTo(at - math.MaxUint32)
		after = math.MaxUint32
	}
	e.repliedAfter = uint32(after)
}

// grant records count permits that were granted with the last reply.
func (e *mirrorEntry) grant(count int64) {
	e.moveTo(e.repliedAt())
	e.repliedAfter = 0
	e.granted[0].add(count)
}

// moveTo sets the time of the last grant, and moves the counts to their new slots.
func (e *mirrorEntry) moveTo(at int64) {
	if by := at/e.slotWidth() - e.grantedAt()/e.slotWidth(); by > 0 {
		by = min(by, mirrorSlots)
		copy(e.granted[by:], e.granted[:mirrorSlots-by])
		clear(e.granted[:by])
	}
	e.setTimes(at, e.waitUntil(), e.cost())
}

// refund removes permits that were granted at the time at, from that slot or, if the
// clocks differ, from a near one. It returns how many were removed.
func (e *mirrorEntry) refund(at, count int64) int64 {
	if at <= e.repliedAt()-unpackHorizon(e.horizon) {
		return 0 // they have expired
	}
	begin := max(0, min(mirrorSlots-1, e.grantedAt()/e.slotWidth()-at/e.slotWidth()))
	for i := range int64(mirrorSlots) {
		if g := &e.granted[(begin+i)%mirrorSlots]; g.count() > 0 {
			refunded := min(count, g.count())
			g.add(-refunded)
			return refunded
		}
	}
	return 0
}

// setReply records the reply of the store: how many permits are taken, and the wait for cost permits.
func (e *mirrorEntry) setReply(used, wait, cost int64) {
	e.used = uint32(max(0, min(used, MaxCount)))
	e.setTimes(e.grantedAt(), e.repliedAt()+wait, cost)
}

// setBanned records that waitUntil is the end of a ban.
func (e *mirrorEntry) setBanned() { e.used |= mirrorBanned }

// A packedCount is a number of permits in 24 bits. The largest value means more than any
// limit has.
type packedCount [3]byte

// maxPackedCount is the largest value of a packedCount.
const maxPackedCount = 1<<24 - 1

func (p *packedCount) count() int64 {
	n := int64(p[0]) | int64(p[1])<<8 | int64(p[2])<<16
	if n == maxPackedCount {
		return MaxCount
	}
	return n
}

// add adds n, which may be negative. The largest value stays as it is.
func (p *packedCount) add(n int64) {
	if was := p.count(); was < maxPackedCount {
		n = min(was+n, maxPackedCount)
		p[0], p[1], p[2] = byte(n), byte(n>>8), byte(n>>16)
	}
}

// packHorizon stores the 11 highest bits of a horizon and a shift, rounding up by at most
// a thousandth.
func packHorizon(ms int64) uint16 {
	shift := max(0, bits.Len64(uint64(ms))-11)
	ms = (ms + 1<<shift - 1) >> shift
	if ms >= 1<<11 {
		ms, shift = ms>>1, shift+1
	}
	return uint16(shift<<11) | uint16(ms)
}

func unpackHorizon(packed uint16) int64 { return int64(packed&(1<<11-1)) << (packed >> 11) }
