package limiter

import (
	"context"
	"time"
)

// Renew implements AdminStore.
func (m *Memory) Renew(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	lost := false
	for _, c := range claims {
		held := false
		m.change(c, passOver, func(t *tally, now int64) {
			held = c.Limit.Algorithm == Concurrent && t.renew(now, p.ID)
		})
		lost = lost || !held
	}
	if lost {
		return ErrReturned
	}
	return nil
}

// Reset implements AdminStore.
func (m *Memory) Reset(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, passOver, func(t *tally, _ Claim, now int64) {
		*t = tally{algorithm: t.algorithm, window: window{floor: now, entries: t.entries[:0]}}
	})
}

// Grant implements AdminStore.
func (m *Memory) Grant(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, passOver, func(t *tally, c Claim, now int64) { t.grant(now, c.Limit, c.Cost) })
}

// Ban implements AdminStore. A banned key gets a cell even without capacity, because bans
// are rare.
func (m *Memory) Ban(_ context.Context, claims []Claim, d time.Duration) error {
	if err := CheckBan(d); err != nil {
		return err
	}
	absent := passOver
	if d > 0 {
		absent = create
	}
	return m.changeAll(claims, absent, func(t *tally, _ Claim, now int64) { t.banned = now + d.Milliseconds() })
}

// An ifAbsent is the handling of a key without a cell.
type ifAbsent int

const (
	passOver ifAbsent = iota
	create
)

// changeAll calls change for the cell of each claim.
func (m *Memory) changeAll(claims []Claim, absent ifAbsent, change func(t *tally, c Claim, now int64)) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	for _, c := range claims {
		m.change(c, absent, func(t *tally, now int64) { change(t, c, now) })
	}
	return nil
}

// change calls change for the cell of c's key, if it has one or absent says to create it.
// Keys in an overflow count have none and cannot be changed.
func (m *Memory) change(c Claim, absent ifAbsent, change func(t *tally, now int64)) {
	r := m.ref(&c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock().UnixMilli()
	r.index = s.findLocked(r.id, r.hash)
	if r.index == noCell && (absent == create || s.notes.has(r.hash)) {
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index == noCell {
		return
	}
	s.expandLocked(&r, &c, now)
	s.changeLocked(r.index, c.Limit, func(t *tally) {
		t.advance(now, c.Limit)
		change(t, now)
	})
}
