package limiter

// expandLocked moves the note of c's key into its cell, if the key has one of its own; from
// then on it is counted there.
func (s *shard) expandLocked(r *cellRef, c *Claim, now int64) {
	if !s.notes.has(r.hash) {
		return
	}
	cell := s.cells.at(r.index)
	if cell.id != r.id {
		return
	}
	n := s.notes.remove(s.notes.find(r.hash))
	s.bytes -= noteBytes
	var t tally
	s.loadLocked(cell, &t)
	for i := noteSlots - 1; i >= 0; i-- {
		s.takeNotedLocked(cell, &t, min(n.grantsAt(i), now), c.costing(n.granted[i].count()))
	}
	at := max(min(n.saidAt(), now), t.last(c.Limit))
	t.advance(at, c.Limit)
	t.banned = 0
	switch wait := n.waitsUntil() - at; {
	case n.banned():
		t.banned = n.waitsUntil()
	default:
		others := t.left(at, c.Limit) - int64(n.left)
		if soon := min(others, n.cost()); soon > 0 && wait > 0 && c.Limit.Algorithm.log() {
			s.takeNotedLocked(cell, &t, at, c.costing(soon))
			t.backIn(wait, at, c.Limit)
			others -= soon
		}
		s.takeNotedLocked(cell, &t, at, c.costing(others))
	}
	s.saveLocked(cell, &t, c.Limit)
}

// costing returns c with another cost.
func (c *Claim) costing(permits int64) Claim {
	other := *c
	other.Cost = permits
	return other
}

// takeNotedLocked takes the cost of c at time at, or at the time of the latest permit if
// that is later. A share that is used up also returns over time.
func (s *shard) takeNotedLocked(cell *cell, t *tally, at int64, c Claim) {
	if c.Cost <= 0 {
		return
	}
	at = max(at, t.last(c.Limit))
	t.advance(at, c.Limit)
	if c.Limit.Algorithm.log() {
		c.Cost = min(c.Cost, c.Limit.Most()) // this many leave nothing, as more would
	}
	s.takeLocked(cell, t, stamp{at: at}, c)
	t.debt = min(t.debt, float64(c.Limit.Most()))
}

// backIn makes the permits that were just taken return after wait, unless they were merged
// with others.
func (w *window) backIn(wait, now int64, l *Limit) {
	last := len(w.entries) - 1
	if w.entries[last].id != [16]byte{} || w.entries[last].kind != single {
		return
	}
	e := w.entries[last]
	e.kind, e.at = merged, min(now, now+wait-length(l))
	w.entries = w.entries[:last]
	w.insert(e)
}
