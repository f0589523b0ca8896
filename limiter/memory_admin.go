package limiter

import (
	"context"
	"time"
)

// Renew implements AdminStore.
func (m *Memory) Renew(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	expired := false
	for _, c := range claims {
		held := false
		m.change(c, ignoreAbsent, func(t *keyState, now int64) {
			held = c.Limit.Algorithm.HasLeases() && t.renew(now, p.ID)
		})
		expired = expired || !held
	}
	if expired {
		return ErrNotHeld
	}
	return nil
}

// Reset implements AdminStore.
func (m *Memory) Reset(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, ignoreAbsent, func(t *keyState, _ Claim, now int64) {
		*t = keyState{algorithm: t.algorithm, permitLog: permitLog{floor: now, entries: t.entries[:0]}}
	})
}

// Grant implements AdminStore.
func (m *Memory) Grant(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, ignoreAbsent, func(t *keyState, c Claim, now int64) { t.grant(now, c.Limit, c.Cost) })
}

// Ban implements AdminStore. A banned key gets a cell of its own even if the Memory is
// full, because bans are few.
func (m *Memory) Ban(_ context.Context, claims []Claim, d time.Duration) error {
	if err := CheckBan(d); err != nil {
		return err
	}
	absent := ignoreAbsent
	if d > 0 {
		absent = addAbsent
	}
	return m.changeAll(claims, absent, func(t *keyState, _ Claim, now int64) { t.bannedUntil = now + d.Milliseconds() })
}

// ifAbsent determines what a change does for a key that has no cell.
type ifAbsent int

const (
	ignoreAbsent ifAbsent = iota
	addAbsent
)

// changeAll changes the state of each claim's key, one after another.
func (m *Memory) changeAll(claims []Claim, absent ifAbsent, change func(t *keyState, c Claim, now int64)) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	for _, c := range claims {
		m.change(c, absent, func(t *keyState, now int64) { change(t, c, now) })
	}
	return nil
}

// change calls change with the state of c's key, if it has a cell or absent is addAbsent.
// A key that is counted in an overflow cell cannot be changed.
func (m *Memory) change(c Claim, absent ifAbsent, change func(t *keyState, now int64)) {
	r := m.ref(&c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	r.index = s.findLocked(&r.id, r.hash)
	if r.index == noCell && (absent == addAbsent || s.mirrored.has(r.hash)) {
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	if r.index == noCell {
		return
	}
	s.expandMirroredLocked(&r, &c, now)
	s.changeLocked(r.index, c.Limit, func(t *keyState) {
		t.advance(now, c.Limit)
		change(t, now)
	})
}
