package limiter

import (
	"context"
	"time"
)

// Renew implements Keeper.
func (m *Memory) Renew(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	lost := false
	for _, c := range claims {
		held := false
		m.change(c, false, func(t *tally, now int64) {
			held = c.Limit.Algorithm == Concurrent && t.renew(now, p.ID)
		})
		lost = lost || !held
	}
	if lost {
		return ErrReturned
	}
	return nil
}

// Reset implements Keeper.
func (m *Memory) Reset(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, false, func(t *tally, _ Claim, now int64) {
		*t = tally{algorithm: t.algorithm, window: window{floor: now, entries: t.entries[:0]}}
	})
}

// Grant implements Keeper.
func (m *Memory) Grant(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, false, func(t *tally, c Claim, now int64) { t.grant(now, c.Limit, c.Cost) })
}

// Ban implements Keeper. A key that has no room gets some: bans are few.
func (m *Memory) Ban(_ context.Context, claims []Claim, d time.Duration) error {
	if err := CheckBan(d); err != nil {
		return err
	}
	return m.changeAll(claims, d > 0, func(t *tally, _ Claim, now int64) { t.banned = now + d.Milliseconds() })
}

// changeAll changes the cell of each claim, one after another.
func (m *Memory) changeAll(claims []Claim, create bool, change func(t *tally, c Claim, now int64)) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	for _, c := range claims {
		m.change(c, create, func(t *tally, now int64) { change(t, c, now) })
	}
	return nil
}

// change changes the cell of c's key, if it has one or create says to make it.
// A key in the overflow is not known by itself and cannot be changed.
func (m *Memory) change(c Claim, create bool, change func(t *tally, now int64)) {
	r := m.ref(&c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock().UnixMilli()
	r.index = s.findLocked(r.id, r.hash)
	if r.index == nowhere && (create || s.notes.has(r.hash)) {
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index == nowhere {
		return
	}
	s.unfoldLocked(&r, &c, now)
	s.changeLocked(r.index, c.Limit, func(t *tally) {
		t.advance(now, c.Limit)
		change(t, now)
	})
}
