package limiter

// expandMirroredLocked moves the mirror entry of c's key, if there is one, into the key's
// own cell. From then on the key is counted there.
func (s *shard) expandMirroredLocked(r *cellRef, c *Claim, now int64) {
	if !s.mirrored.has(r.hash) {
		return
	}
	cell := s.cells.at(r.index)
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
		if soon := min(others, int64(n.cost)); soon > 0 && wait > 0 && c.Limit.Algorithm.isTokenBucket() && n.isOf(c.Limit) {
			s.takeMirroredLocked(cell, &t, at, c.withCost(soon))
			t.delayLast(wait, at, windowMillis(c.Limit))
			others -= soon
		}
		s.takeMirroredLocked(cell, &t, at, c.withCost(others))
	}
	s.saveLocked(cell, &t, c.Limit)
}

// isOf reports whether the last reply was about the window of l.
func (e *mirrorEntry) isOf(l *Limit) bool {
	return e.horizon == windowMillis(l)
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
