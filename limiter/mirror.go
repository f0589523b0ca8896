package limiter

import "time"

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
		if o := &d.Outcomes[i]; d.Allowed || !o.Allowed {
			m.mirrorClaim(&claims[i], d, o, n)
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
		r := m.ref(c)
		m.shards[r.shard].mirrorRefund(r.hash, p.At.UnixMilli()+m.clockSkew.Load(), c.Cost)
	}
}

// mirrorRefund returns permits to the mirror entry of hash h.
func (s *shard) mirrorRefund(h uint64, at, permits int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.mirrored.find(h); p.item > 0 {
		n := s.mirrored.slab.at(p.item - 1)
		n.used -= min(uint32(n.refund(at, permits)), n.used)
	}
}

// mirrorClaim records the outcome of one claim.
func (m *Memory) mirrorClaim(c *Claim, d *Decision, o *Outcome, n int) {
	r, now := m.ref(c), m.now()
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.Limit.Algorithm.countsPermits() {
		s.mirrorPermitsLocked(&r, mirroredOutcome{c, d, o, n, now})
		return
	}
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

// A mirroredOutcome is what the other store decided for one claim.
type mirroredOutcome struct {
	claim     *Claim
	decision  *Decision
	outcome   *Outcome
	processes int
	now       int64
}

// mirrorPermitsLocked records an outcome in a cell, with the identity of the permit.
func (s *shard) mirrorPermitsLocked(r *cellRef, h mirroredOutcome) {
	c, o, now := h.claim, h.outcome, h.now
	share, parts := c.Limit.Share(h.processes), c.Limit.processes(h.processes)
	own := *c
	own.Limit = &share
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
	if h.decision.Allowed {
		s.takeLocked(cell, &t, stamp{now, h.decision.Permit.ID}, &own)
	}
	switch wait := o.Wait.Milliseconds(); {
	case o.Banned:
		t.bannedUntil = now + wait
	case share.Algorithm.HasValues():
		t.addUnknownUses(now, t.remaining(now, &share)-(o.Remaining+parts-1)/parts)
	case share.Algorithm.HasSteps():
		t.extendPause(now, wait, &share)
	}
	s.saveLocked(cell, &t, &share)
}
