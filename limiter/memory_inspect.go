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
		status := &in.Statuses[i]
		*status = KeyStatus{Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Remaining: c.Limit.Capacity(), Allowed: c.Limit.Capacity()}
		m.shards[refs[i].shard].inspectLocked(&refs[i], &c, now, status)
	}
	return in, nil
}

// inspectLocked sets status to the status of c's key. A key that is only mirrored gets a
// cell.
func (s *shard) inspectLocked(r *cellRef, c *Claim, now int64, status *KeyStatus) {
	if s.mirrored.has(r.hash) && s.findLocked(&r.id, r.hash) == noCell {
		s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index = s.findOrOverflowLocked(&r.id, r.hash, c.Source); r.index == noCell {
		return
	}
	s.expandMirroredLocked(r, c, now)
	cell := s.cells.at(r.index)
	status.Overflow = cell.id != r.id
	var t keyState
	s.loadLocked(cell, &t)
	t.inspect(now, c.Limit, status)
	s.saveLocked(cell, &t, c.Limit)
}

// inspect sets status to that of s.
func (s *keyState) inspect(now int64, l *Limit, status *KeyStatus) {
	s.advance(now, l)
	left := s.remaining(now, l)
	status.Remaining, status.Used = max(0, left), status.Capacity-left
	status.BannedFor = millis(max(0, s.bannedUntil-now))
	if l.Algorithm.HasConversion() {
		status.Used, status.Confirmed = s.taken, s.confirmedSubjects()
		status.Allowed = l.allowance(status.Confirmed)
	}
	if l.Algorithm.HasSteps() {
		status.Used, status.NextIn = max(0, s.taken), millis(s.waitCooldown(now, l))
		if s.taken > 0 {
			status.FullIn = millis(s.newestTime() + windowMillis(l) - now)
		}
		return
	}
	if status.Remaining < status.Capacity {
		status.NextIn, status.FullIn = millis(s.wait(now, l, status.Remaining+1)), millis(s.wait(now, l, status.Capacity))
	}
}
