package limiter

import (
	"context"
	"time"
)

// Inspect implements AdminStore.
func (m *Memory) Inspect(_ context.Context, claims []Claim) (Inspection, error) {
	if err := CheckAll(claims); err != nil {
		return Inspection{}, err
	}
	var room [inline]cellRef
	refs := m.refs(claims, room[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.clock().UnixMilli()
	in := Inspection{At: time.UnixMilli(now), Standings: make([]Standing, len(claims))}
	for i, c := range claims {
		standing := &in.Standings[i]
		*standing = Standing{Rate: c.Limit.Rate, Most: c.Limit.Most(), Left: c.Limit.Most()}
		m.shards[refs[i].shard].inspectLocked(&refs[i], &c, now, standing)
	}
	return in, nil
}

// inspectLocked stores the state of c's key in standing. A key with only a note gets a
// cell.
func (s *shard) inspectLocked(r *cellRef, c *Claim, now int64, standing *Standing) {
	if s.notes.has(r.hash) && s.findLocked(r.id, r.hash) == noCell {
		s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index = s.sharedLocked(r.id, r.hash, c.Source); r.index == noCell {
		return
	}
	s.expandLocked(r, c, now)
	cell := s.cells.at(r.index)
	standing.Overflow = cell.id != r.id
	var t tally
	s.loadLocked(cell, &t)
	t.inspect(now, c.Limit, standing)
	s.saveLocked(cell, &t, c.Limit)
}

// inspect stores the state of t in s.
func (t *tally) inspect(now int64, l *Limit, s *Standing) {
	t.advance(now, l)
	left := t.left(now, l)
	s.Left, s.Used = max(0, left), s.Most-left
	s.Banned = millis(max(0, t.banned-now))
	if l.Algorithm == Cooldown {
		s.Used, s.Next = max(0, t.taken), millis(t.pause(now, l))
		if t.taken > 0 {
			s.Full = millis(t.newest() + length(l) - now)
		}
		return
	}
	if s.Left < s.Most {
		s.Next, s.Full = millis(t.wait(now, l, s.Left+1)), millis(t.wait(now, l, s.Most))
	}
}
