package limiter

// Note records a decision of another store about claims, so that this Memory can take over
// from it for one of n processes: it then knows the recent permits of this process, and
// that the others had their share.
//
// Granted permits are counted, whatever is left of this process's share; NoteRefund refunds
// them. After that, and after a refusal, at most an n-th of what the other store had left
// is left here: the difference counts as taken now, except that with TokenBucket and
// SlidingLog the same claim is granted again when the other store said so. Concurrent
// permits of other processes are not considered.
//
// The counts are coarser than in the other store, and stricter: permits of a limit with a
// rate return up to a third of its horizon late, never early.
//
// Notes use at most half of the capacity for keys; beyond that, new keys are not recorded.
// A claim takes about 0.2 µs and does not allocate if its key is known; a key takes 48
// bytes, whatever was taken. Keys of Concurrent, Distinct and Cooldown, which need the
// single permits and values, take as much memory as with Take.
func (m *Memory) Note(claims []Claim, d *Decision, n int) {
	for i := range claims[:min(len(claims), len(d.Outcomes))] {
		if o := &d.Outcomes[i]; d.Allowed || !o.Allowed {
			m.note(&claims[i], d, o, n)
		}
	}
}

// NoteRefund records a refund of p for these claims in the other store, after a call of
// Note. Unlike Refund it is not idempotent.
func (m *Memory) NoteRefund(claims []Claim, p Permit, n int) {
	for i := range claims {
		c := &claims[i]
		if !c.Limit.Algorithm.rated() {
			own, share := *c, c.Limit.Share(n)
			own.Limit = &share
			m.refund(&own, Permit{ID: p.ID, At: m.clock()})
			continue
		}
		r := m.ref(c)
		m.shards[r.shard].noteRefund(r.hash, p.At.UnixMilli()+m.ahead.Load(), c.Cost)
	}
}

// noteRefund refunds permits in the note with hash h.
func (s *shard) noteRefund(h uint64, at, permits int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.notes.find(h); p.item > 0 {
		n := s.notes.slab.at(p.item - 1)
		back := n.giveBack(at, permits)
		n.left = n.left&noteBanned | uint32(min(int64(n.left&^noteBanned)+back, MaxCount))
	}
}

// rated reports whether only the number of permits matters for a, not their identity.
func (a Algorithm) rated() bool { return a != Concurrent && a != Distinct && a != Cooldown }

func (m *Memory) note(c *Claim, d *Decision, o *Outcome, n int) {
	r, now := m.ref(c), m.clock().UnixMilli()
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.Limit.Algorithm.rated() {
		s.noteWholeLocked(&r, foreignDecision{c, d, o, n, now})
		return
	}
	if !d.At.IsZero() {
		m.ahead.Store(now - d.At.UnixMilli())
	}
	horizon := packHorizon(c.Limit.Horizon().Milliseconds())
	note := s.notedLocked(r.hash, now, horizon)
	if note == nil {
		return
	}
	note.advance(now, horizon)
	if d.Allowed {
		note.grant(c.Cost)
	}
	parts := c.Limit.parts(n)
	note.say((o.Remaining+parts-1)/parts, o.Wait.Milliseconds(), c.Cost)
	if o.Banned {
		note.ban()
	}
}

// notedLocked returns the note with hash h; a new one if there is enough capacity, else
// nil.
func (s *shard) notedLocked(h uint64, now int64, horizon uint16) *note {
	if p := s.notes.find(h); p.item > 0 {
		return s.notes.slab.at(p.item - 1)
	}
	s.sweepLocked(now, sweepStep)
	if !s.wellBelowLocked(noteBytes) {
		s.sweepLocked(now, fullSweep)
		if !s.wellBelowLocked(noteBytes) {
			return nil
		}
	}
	s.bytes += noteBytes
	return s.notes.add(h, now, horizon)
}

// wellBelowLocked reports whether half of the capacity is free after adding a key of this
// size.
func (s *shard) wellBelowLocked(bytes int64) bool {
	return 2*s.keysLocked() < s.maxKeys && 2*(s.bytes+bytes) <= s.maxBytes
}

// A foreignDecision is the decision of the other store about one claim, for one of n
// processes.
type foreignDecision struct {
	claim    *Claim
	decision *Decision
	outcome  *Outcome
	n        int
	now      int64
}

// noteWholeLocked records a decision in a cell, permit by permit.
func (s *shard) noteWholeLocked(r *cellRef, h foreignDecision) {
	c, o, now := h.claim, h.outcome, h.now
	share, parts := c.Limit.Share(h.n), c.Limit.parts(h.n)
	own := *c
	own.Limit = &share
	if r.index = s.findLocked(r.id, r.hash); r.index == noCell {
		s.sweepLocked(now, sweepStep)
		if !s.wellBelowLocked(cellBytes) {
			return
		}
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	var t tally
	cell := s.cells.at(r.index)
	s.loadLocked(cell, &t)
	t.advance(now, &share)
	t.banned = 0
	if h.decision.Allowed {
		s.takeLocked(cell, &t, stamp{now, h.decision.Permit.ID}, own)
	}
	switch wait := o.Wait.Milliseconds(); {
	case o.Banned:
		t.banned = now + wait
	case share.Algorithm == Distinct:
		t.useUnknown(now, t.left(now, &share)-(o.Remaining+parts-1)/parts)
	case share.Algorithm == Cooldown:
		t.pauseFor(now, wait, &share)
	}
	s.saveLocked(cell, &t, &share)
}
