package limiter

import (
	"context"
	"time"
)

// Inspect implements AdminStore.
func (m *Memory) Inspect(_ context.Context, claims []Claim) (Inspection, error) {
	if err := CheckClaims(claims); err != nil {
		return Inspection{}, err
	}
	var buf [inlineClaims]cellRef
	refs := m.refs(claims, buf[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.now()
	in := Inspection{At: time.UnixMilli(now), Statuses: make([]KeyStatus, len(claims))}
	for i, c := range claims {
		standing := &in.Statuses[i]
		*standing = KeyStatus{Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Remaining: c.Limit.Capacity()}
		m.shards[refs[i].shard].inspectLocked(&refs[i], &c, now, standing)
	}
	return in, nil
}

// inspectLocked sets status to the status of c's key. A key that is only mirrored gets a
// cell.
func (s *shard) inspectLocked(r *cellRef, c *Claim, now int64, standing *KeyStatus) {
	if s.mirrored.has(r.hash) && s.findLocked(&r.id, r.hash) == noCell {
		s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index = s.findOrOverflowLocked(&r.id, r.hash, c.Source); r.index == noCell {
		return
	}
	s.expandMirroredLocked(r, c, now)
	cell := s.cells.at(r.index)
	standing.Overflow = cell.id != r.id
	var t keyState
	s.loadLocked(cell, &t)
	t.inspect(now, c.Limit, standing)
	s.saveLocked(cell, &t, c.Limit)
}

// inspect sets s to the status of t.
func (t *keyState) inspect(now int64, l *Limit, s *KeyStatus) {
	t.advance(now, l)
	left := t.remaining(now, l)
	s.Remaining, s.Used = max(0, left), s.Capacity-left
	s.BannedFor = millis(max(0, t.bannedUntil-now))
	if l.Algorithm.HasSteps() {
		s.Used, s.NextIn = max(0, t.taken), millis(t.pauseLeft(now, l))
		if t.taken > 0 {
			s.FullIn = millis(t.newestTime() + windowMillis(l) - now)
		}
		return
	}
	if s.Remaining < s.Capacity {
		s.NextIn, s.FullIn = millis(t.wait(now, l, s.Remaining+1)), millis(t.wait(now, l, s.Capacity))
	}
}
