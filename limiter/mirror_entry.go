package limiter

// A mirrorEntry is the last known state of a key in another store and what it recently
// granted to this process. It is enough to continue from if that store is
// unreachable. Instead of single permits it has their number in each third of a horizon.
// So some permits expire up to a third of the horizon late, and none early. Times are
// milliseconds. A key is identified by its hash, and by its shard.
type mirrorEntry struct {
	hash      uint64
	horizon   int64  // of the limit; 0 if the entry is free
	grantedAt int64  // time of the last grant
	repliedAt int64  // time of the store's last reply
	waitUntil int64  // end of the refusal or ban
	used      uint32 // permits that were taken of the limit, by all processes
	cost      uint32 // of the last claim
	isBanned  bool
	granted   [mirrorSlots]uint32
}

const (
	mirrorSlots      = 4  // the third in which the last permit was granted, and those before it
	mirrorEntryBytes = 80 // including its slot in the index, as measured
)

// slotWidth returns the length of the periods that permits are counted in.
func (e *mirrorEntry) slotWidth() int64 {
	return (e.horizon + mirrorSlots - 2) / (mirrorSlots - 1)
}

// expiresAt returns the time at which e has no meaning any more.
func (e *mirrorEntry) expiresAt() int64 {
	return max(e.waitUntil, e.repliedAt+e.horizon)
}

// slotEnd returns the latest time at which a permit of slot i can have been granted. All
// permits of the slot count as granted then.
func (e *mirrorEntry) slotEnd(i int) int64 {
	if i == 0 {
		return e.grantedAt
	}
	return (e.grantedAt/e.slotWidth()-int64(i)+1)*e.slotWidth() - 1
}

// advance moves e to now, under a limit with this horizon. Permits that were counted
// under another horizon count as granted with the last of them.
func (e *mirrorEntry) advance(now, horizon int64) {
	if e.horizon != horizon {
		e.horizon = horizon
		for i := 1; i < mirrorSlots; i++ {
			e.granted[0] += e.granted[i]
			e.granted[i] = 0
		}
	}
	e.repliedAt = max(now, e.repliedAt) // now is earlier if the clock was set back
}

// grant records count permits that were granted with the last reply.
func (e *mirrorEntry) grant(count int64) {
	if by := e.repliedAt/e.slotWidth() - e.grantedAt/e.slotWidth(); by > 0 {
		by = min(by, mirrorSlots)
		copy(e.granted[by:], e.granted[:mirrorSlots-by])
		clear(e.granted[:by])
	}
	e.grantedAt = e.repliedAt
	e.granted[0] += uint32(count)
}

// refund removes permits that were granted at the time at, from that slot or, if the
// clocks differ, from a near one. It returns how many were removed.
func (e *mirrorEntry) refund(at, count int64) int64 {
	if at <= e.repliedAt-e.horizon {
		return 0 // they have expired
	}
	begin := max(0, min(mirrorSlots-1, e.grantedAt/e.slotWidth()-at/e.slotWidth()))
	for i := range int64(mirrorSlots) {
		if g := &e.granted[(begin+i)%mirrorSlots]; *g > 0 {
			refunded := min(count, int64(*g))
			*g -= uint32(refunded)
			return refunded
		}
	}
	return 0
}
