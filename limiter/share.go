package limiter

// Share is the part of l that each of n processes may grant by itself while they
// cannot count together: the n-th part of its permits, but at least 1. A limit
// that each counts by itself anyway stays whole.
func (l *Limit) Share(n int) Limit {
	part, of := *l, l.parts(n)
	part.Rate.Count = max(l.Rate.Count/of, 1)
	if l.Burst > 0 {
		part.Burst = max(l.Burst/of, 1)
	}
	return part
}

func (l *Limit) parts(n int) int64 {
	if l.Scope == PerClient {
		return 1
	}
	return int64(max(n, 1))
}

// Note counts here what another store has decided of claims, so that this Memory
// can take over from it for one of n processes: it knows what this process has
// had lately, and that others had their part.
//
// What was granted is taken, whatever is left of this process's share, and
// Refund gives it back by its id. Then, and after a refusal, no more is left here
// than the n-th part of what the other store had left: what is missing counts as
// taken now, except that with a TokenBucket or a SlidingLog the same claim passes again when the
// other store said so. Concurrent permits of others are not taken into account.
//
// No more than half of the room for keys is filled that way; beyond, nothing is
// noted of new keys. A claim costs about as much as in Take, 0.5 to 0.9 µs, and does
// not allocate once its key is known; a key takes 180 to 210 bytes with one permit,
// with a log and ten 690.
func (m *Memory) Note(claims []Claim, d *Decision, n int) {
	for i, c := range claims[:min(len(claims), len(d.Outcomes))] {
		if o := &d.Outcomes[i]; d.Allowed || !o.Allowed {
			m.note(c, d, o, n)
		}
	}
}

func (m *Memory) note(c Claim, d *Decision, o *Outcome, n int) {
	share, parts := c.Limit.Share(n), c.Limit.parts(n)
	own := c
	own.Limit = &share
	id := cellID{limit: m.number(c.Limit.Name), key: c.Key}
	s := &m.shards[m.shard(c.Key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock().UnixMilli()
	found := s.notedLocked(id, c.Source, now)
	if found == nil {
		return
	}
	found.advance(now, &share)
	found.banned = 0
	if d.Allowed {
		s.takeLocked(found, now, own, d.Permit.ID)
	}
	switch wait := o.Wait.Milliseconds(); {
	case o.Banned:
		found.banned = now + wait
	case share.Algorithm == Distinct:
		others := found.left(now, &share) - (o.Remaining+parts-1)/parts
		s.changeLocked(found, &share, func(t *tally) { t.useUnknown(now, others) })
	case share.Algorithm == Cooldown:
		s.changeLocked(found, &share, func(t *tally) { t.pauseFor(now, wait, &share) })
	case share.Algorithm != Concurrent:
		others := found.left(now, &share) - (o.Remaining+parts-1)/parts
		if soon := min(others, c.Cost); soon > 0 && wait > 0 && share.Algorithm.log() {
			own.Cost = soon
			s.takeLocked(found, now, own, [16]byte{})
			found.backIn(wait, now, &share)
			others -= soon
		}
		if others > 0 {
			own.Cost = others
			s.takeLocked(found, now, own, [16]byte{})
		}
	}
	found.debt = min(found.debt, float64(share.Most())) // a share that is all used still flows back
	found.until = max(found.until, found.tally.until(&share))
}

// notedLocked is the cell that counts id; a new one if there is plenty of room,
// or nil.
func (s *shard) notedLocked(id cellID, source uint32, now int64) *cell {
	if c := s.findLocked(id); c != nil {
		return c
	}
	s.sweepLocked(now, sweepStep)
	if 2*len(s.index) >= s.maxCells || 2*(s.bytes+cellBytes+entryBytes) > s.maxBytes {
		return nil
	}
	return &s.cells[s.addLocked(id, source, now)]
}

// backIn lets what was just taken for nobody come back after wait, unless it had
// to join others.
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
