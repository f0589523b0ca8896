package limiter

import "math"

// A note is the last known state of a key in another store, and the recent permits of this
// process, in 40 bytes: enough to take over if the store becomes unreachable. Instead of
// single permits it has the number of permits in each third of a horizon, so some of them
// return up to a third of the horizon late, and none early. Times are milliseconds, with 44
// bits.
//
// A note identifies its key by 48 bits of a hash, and by its shard. Two keys with the same
// bits, one pair in 10^16, share a note.
type note struct {
	nameLow  uint32
	nameHigh uint16
	horizon  uint16 // in the format of packHorizon; 0 for no note
	grantLow uint32 // time of the last permit, or a time before all that count
	waitLow  uint32 // end of the store's refusal, or of a ban
	// high has 12 more bits of both, and in 8 bits the cost of the claim, capped.
	high    uint32
	after   uint32 // time between the last permit and the last decision of the store
	left    uint32 // this process's share of what the store had left, and a bit for banned
	granted [noteSlots]permits
}

const (
	noteSlots  = 4 // the third with the last permit, and the earlier ones
	noteBanned = 1 << 31
	noteBytes  = 48 // with its slot in the index, as measured
	noteName   = 1<<48 - 1
	highBits   = 12
)

// hash returns the hash for the index: all its bits depend on the name.
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

// saidAt returns the time of the last decision of the store.
func (n *note) saidAt() int64 { return n.grantedAt() + int64(n.after) }

func (n *note) banned() bool { return n.left&noteBanned != 0 }

// part returns the length of the parts in which permits are counted.
func (n *note) part() int64 { return (unpackHorizon(n.horizon) + noteSlots - 2) / (noteSlots - 1) }

// until returns the time at which all information in n has expired.
func (n *note) until() int64 {
	return max(n.waitsUntil(), n.saidAt()+unpackHorizon(n.horizon))
}

// grantsAt returns the time at which the permits of part i count as granted: the end of the
// part.
func (n *note) grantsAt(i int) int64 {
	last := n.grantedAt()
	if i == 0 {
		return last
	}
	return (last/n.part()-int64(i)+1)*n.part() - 1
}

// advance updates n to now, for a limit with this horizon. Permits counted with another
// horizon count as granted with the last of them.
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

// hear records that the store decided at time at, not before the last decision. Intervals
// of more than 32 bits are shortened.
func (n *note) hear(at int64) {
	after := at - n.grantedAt()
	if after > math.MaxUint32 {
		n.moveTo(at - math.MaxUint32)
		after = math.MaxUint32
	}
	n.after = uint32(after)
}

// grant records permits that were granted at the last decision.
func (n *note) grant(count int64) {
	n.moveTo(n.saidAt())
	n.after = 0
	n.granted[0].add(count)
}

// moveTo sets the time of the last permit.
func (n *note) moveTo(at int64) {
	if by := at/n.part() - n.grantedAt()/n.part(); by > 0 {
		by = min(by, noteSlots)
		copy(n.granted[by:], n.granted[:noteSlots-by])
		clear(n.granted[:by])
	}
	n.set(at, n.waitsUntil(), n.cost())
}

// giveBack refunds permits that were granted at time at: in that part, or in one near it if
// the clocks differ.
func (n *note) giveBack(at, count int64) int64 {
	if at <= n.saidAt()-unpackHorizon(n.horizon) {
		return 0 // they have already returned
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

// say records the store's result: this process's share of what is left, and the wait for
// cost permits.
func (n *note) say(left, wait, cost int64) {
	n.left = uint32(max(0, min(left, MaxCount)))
	n.set(n.grantedAt(), n.saidAt()+wait, cost)
}

// ban records that the wait is the end of a ban.
func (n *note) ban() { n.left |= noteBanned }
