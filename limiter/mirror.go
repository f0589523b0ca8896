package limiter

import (
	"time"
)

// Mirror records what another store has decided for claims, so that this Memory can
// replace that store, for one of n processes, while it is unreachable.
//
// Granted permits are taken here too, even beyond this process's share; MirrorRefund
// returns them. Afterwards at most the n-th part of what the other store had left remains
// here. The rest counts as taken now, except that under a TokenBucket or SlidingLog limit
// the same claim is granted again when the other store said so. Concurrent permits of
// other processes are not taken into account.
//
// Counts are coarser than in the other store, and stricter: under a limit with a rate,
// permits expire up to a third of its horizon late, and never early.
//
// A refusal that the other store repeats is recorded once.
//
// Mirrored keys take at most half of the capacity for keys; beyond that, new keys are not
// mirrored. A claim costs about 0.2 µs and does not allocate once its key is known, and a
// key takes 80 bytes whatever was taken. Keys of Concurrent, Distinct and Cooldown limits
// need single permits and values, so they take as much as in Take.
func (m *Memory) Mirror(claims []Claim, d *Decision, n int) {
	if d.Repeats != nil {
		if d.Repeats.mirroredBy.Load() == m {
			return
		}
		d.Repeats.mirroredBy.Store(m)
	}
	for i := range claims[:min(len(claims), len(d.Outcomes))] {
		c, o := &claims[i], &d.Outcomes[i]
		switch {
		case !d.Allowed && o.Allowed: // another claim was refused
		case c.Limit.Algorithm.countsPermits():
			m.mirrorClaim(c, d, o)
		default:
			m.mirrorPermits(c, d, o, n)
		}
	}
}

// MirrorRefund records that the other store refunded permits of p that Mirror has
// recorded. Unlike Refund, it must be called only once for each permit.
func (m *Memory) MirrorRefund(claims []Claim, p Permit, n int) {
	for i := range claims {
		c := &claims[i]
		if !c.Limit.Algorithm.countsPermits() {
			own, share := *c, c.Limit.Share(n)
			own.Limit = &share
			m.refund(&own, Permit{ID: p.ID, At: time.UnixMilli(m.now())})
			continue
		}
		m.changeMirrored(c, func(e *mirrorEntry, _ int64) {
			e.used -= min(uint32(e.refund(p.At.UnixMilli()+m.clockSkew.Load(), c.Cost)), e.used)
		})
	}
}

// MirrorCharge records that the other store charged claims.
func (m *Memory) MirrorCharge(claims []Claim) {
	for i := range claims {
		c := &claims[i]
		m.changeMirrored(c, func(e *mirrorEntry, now int64) {
			e.advance(now, c.Limit.Horizon().Milliseconds())
			e.grant(c.Cost)
			e.used += uint32(c.Cost)
		})
	}
}

// changeMirrored calls change with the mirror entry of c's key and the time, if there is one.
func (m *Memory) changeMirrored(c *Claim, change func(e *mirrorEntry, now int64)) {
	r, s, now := m.lockOne(c)
	defer s.mu.Unlock()
	if p := s.mirrored.find(r.hash); p.item > 0 {
		change(s.mirrored.slab.at(p.item-1), now)
	}
}

// mirrorClaim records the outcome of one claim in a mirror entry.
func (m *Memory) mirrorClaim(c *Claim, d *Decision, o *Outcome) {
	r, s, now := m.lockOne(c)
	defer s.mu.Unlock()
	if skew := now - d.At.UnixMilli(); !d.At.IsZero() && skew != m.clockSkew.Load() { // it rarely changes, and all processors share it
		m.clockSkew.Store(skew)
	}
	horizon := c.Limit.Horizon().Milliseconds()
	note := s.findOrAddMirroredLocked(r.hash, now, horizon)
	if note == nil {
		return
	}
	note.advance(now, horizon)
	if d.Allowed {
		note.grant(c.Cost)
	}
	note.used, note.cost = uint32(max(0, c.Limit.Capacity()-o.Remaining)), uint32(c.Cost)
	note.waitUntil, note.isBanned = note.repliedAt+o.Wait.Milliseconds(), o.Banned
}

// findOrAddMirroredLocked returns the mirror entry of hash h. It adds one if less than
// half of the capacity is in use, and otherwise returns nil.
func (s *shard) findOrAddMirroredLocked(h uint64, now, horizon int64) *mirrorEntry {
	if p := s.mirrored.find(h); p.item > 0 {
		return s.mirrored.slab.at(p.item - 1)
	}
	s.sweepLocked(now, sweepStep)
	if !s.isHalfEmptyLocked(mirrorEntryBytes) {
		s.sweepLocked(now, fullSweep)
		if !s.isHalfEmptyLocked(mirrorEntryBytes) {
			return nil
		}
	}
	s.bytes += mirrorEntryBytes
	return s.mirrored.add(h, now, horizon)
}

// isHalfEmptyLocked reports whether half of the capacity is free after adding a key of
// this size.
func (s *shard) isHalfEmptyLocked(bytes int64) bool {
	return 2*s.keysLocked() < s.maxKeys && 2*(s.bytes+bytes) <= s.maxBytes
}

// mirrorPermits records the outcome of one claim in a cell, with the identity of the permit.
func (m *Memory) mirrorPermits(c *Claim, d *Decision, o *Outcome, n int) {
	own, share := *c, c.Limit.Share(n)
	own.Limit = &share
	r, s, now := m.lockOne(c)
	defer s.mu.Unlock()
	if r.index = s.findLocked(&r.id, r.hash); r.index == noCell {
		s.sweepLocked(now, sweepStep)
		if !s.isHalfEmptyLocked(cellBytes) {
			return
		}
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	var t keyState
	cell := s.cells.at(r.index)
	s.loadLocked(cell, &t)
	t.advance(now, &share)
	t.bannedUntil = 0
	if d.Allowed {
		s.takeLocked(cell, &t, stamp{now, d.Permit.ID}, &own)
	}
	switch wait := o.Wait.Milliseconds(); {
	case o.Banned:
		t.bannedUntil = now + wait
	case share.Algorithm.HasValues():
		t.addUnknownUses(now, t.remaining(now, &share)-(o.Remaining+share.parts-1)/share.parts)
	case share.Algorithm.HasSteps():
		t.extendPause(now, wait, &share)
	}
	s.saveLocked(cell, &t, &share)
}

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

// A mirrorTable holds the mirror entries of one shard. The lock of the shard guards it.
type mirrorTable struct {
	slab  slab[mirrorEntry]
	index index
}

func (t *mirrorTable) hashOf(i uint32) uint64 { return t.slab.at(i).hash }

// find returns the probe of the key with hash h; a probe without an item if there is
// none.
func (t *mirrorTable) find(h uint64) probe {
	return t.index.find(h, func(i uint32) bool { return t.hashOf(i) == h })
}

// has reports whether there is an entry of hash h. It is cheap if the table is empty.
func (t *mirrorTable) has(h uint64) bool { return t.index.used > 0 && t.find(h).item > 0 }

// add adds the entry of hash h.
func (t *mirrorTable) add(h uint64, now, horizon int64) *mirrorEntry {
	i := t.slab.add()
	at := t.slab.at(i)
	*at = mirrorEntry{hash: h, horizon: horizon, grantedAt: now, repliedAt: now}
	t.index.add(h, i, t.hashOf)
	return at
}

// remove removes the entry that p has found and returns it.
func (t *mirrorTable) remove(p probe) mirrorEntry {
	was := *t.slab.at(p.item - 1)
	t.index.remove(p, t.hashOf)
	t.slab.remove(p.item - 1)
	return was
}

// sweep removes expired entries among the next count entries and returns how many it
// removed.
func (t *mirrorTable) sweep(now int64, count uint32) (removed int64) {
	t.slab.sweep(count, func(_ uint32, e *mirrorEntry) {
		if e.horizon != 0 && e.expiresAt() <= now {
			t.remove(t.find(e.hash))
			removed++
		}
	})
	return removed
}

// expandMirroredLocked moves the mirror entry of r's key, if there is one, into the key's
// own cell, which is added if r has none. From then on the key is counted there.
func (s *shard) expandMirroredLocked(r *cellRef, now int64) {
	if !s.mirrored.has(r.hash) {
		return
	}
	if r.index == noCell {
		r.index = s.addLocked(r.id, r.hash, r.claim.Source, now)
	}
	cell, c := s.cells.at(r.index), r.claim
	if cell.id != r.id {
		return
	}
	n := s.mirrored.remove(s.mirrored.find(r.hash))
	s.bytes -= mirrorEntryBytes
	var t keyState
	s.loadLocked(cell, &t)
	for i := mirrorSlots - 1; i >= 0; i-- {
		s.takeMirroredLocked(cell, &t, min(n.slotEnd(i), now), c.withCost(int64(n.granted[i])))
	}
	at := max(min(n.repliedAt, now), t.lastChange(c.Limit))
	t.advance(at, c.Limit)
	t.bannedUntil = 0
	switch wait := n.waitUntil - at; {
	case n.isBanned:
		t.bannedUntil = n.waitUntil
	default:
		others := t.remaining(at, c.Limit) - c.Limit.shareOf(int64(n.used))
		if soon := min(others, int64(n.cost)); soon > 0 && wait > 0 && c.Limit.Algorithm.isTokenBucket() && n.horizon == windowMillis(c.Limit) {
			s.takeMirroredLocked(cell, &t, at, c.withCost(soon))
			t.delayLast(wait, at, windowMillis(c.Limit))
			others -= soon
		}
		s.takeMirroredLocked(cell, &t, at, c.withCost(others))
	}
	s.saveLocked(cell, &t, c.Limit)
}

// withCost returns c with another cost.
func (c *Claim) withCost(permits int64) Claim {
	other := *c
	other.Cost = permits
	return other
}

// takeMirroredLocked takes the permits of c at the time at, or at the last change of t if
// that is later.
func (s *shard) takeMirroredLocked(cell *cell, t *keyState, at int64, c Claim) {
	if c.Cost <= 0 {
		return
	}
	at = max(at, t.lastChange(c.Limit))
	t.advance(at, c.Limit)
	if c.Limit.Algorithm.isTokenBucket() {
		c.Cost = min(c.Cost, c.Limit.Capacity()) // as many at one time leave none; more would not change that
	}
	s.takeLocked(cell, t, stamp{at: at}, &c)
	t.debt = min(t.debt, float64(c.Limit.Capacity()))
}

// delayLast changes the time of the entry that was taken last, without an ID, so that it
// expires after wait. It does nothing if the permits were merged into another entry.
func (l *permitLog) delayLast(wait, now, length int64) {
	last := len(l.entries) - 1
	if l.entries[last].id != [16]byte{} || l.entries[last].kind != single {
		return
	}
	e := l.entries[last]
	e.kind, e.at = merged, min(now, now+wait-length)
	l.entries = l.entries[:last]
	l.insert(e)
}
