package limiter

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Renew implements AdminStore.
func (m *Memory) Renew(_ context.Context, claims []Claim, p Permit) error {
	held := 0
	err := m.changeAll(claims, ignoreAbsent, func(t *keyState, c Claim, now int64) {
		if c.Limit.Algorithm.HasLeases() && t.renew(now, p.ID) {
			held++
		}
	})
	if err == nil && held < len(claims) {
		return ErrNotHeld
	}
	return err
}

// Reset implements AdminStore.
func (m *Memory) Reset(_ context.Context, claims []Claim) error {
	return m.changeAll(claims, ignoreAbsent, func(t *keyState, _ Claim, now int64) {
		*t = keyState{algorithm: t.algorithm, permitLog: permitLog{floor: now, entries: t.entries[:0]}}
	})
}

// StartRefund implements AdminStore. In memory nothing is waited for.
func (m *Memory) StartRefund(claims []Claim, p Permit) (wait func() error) {
	err := m.Refund(context.Background(), claims, p)
	return func() error { return err }
}

// StartReset implements AdminStore.
func (m *Memory) StartReset(claims []Claim) (wait func() error) {
	err := m.Reset(context.Background(), claims)
	return func() error { return err }
}

// StartReturn implements AdminStore.
func (m *Memory) StartReturn(limits []*Limit, subject Key) (wait func() (decisions int, err error)) {
	n, err := m.Return(context.Background(), limits, subject)
	return func() (int, error) { return n, err }
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

// Charge implements AdminStore.
func (m *Memory) Charge(_ context.Context, claims []Claim, p Permit) error {
	err := CheckCharges(claims)
	if err == nil {
		m.Report(claims, p.Charge())
	}
	return err
}

// Report implements AdminStore.
func (m *Memory) Report(claims []Claim, p Permit) {
	for i := range claims {
		c := &claims[i]
		r, s, now := m.lockOne(c)
		r.index = s.findOrAddLocked(&r.id, r.hash, c.Source, now)
		s.expandMirroredLocked(&r, now)
		s.changeLocked(r.index, c.Limit, func(t *keyState) {
			if t.advance(now, c.Limit); slices.ContainsFunc(t.entries, func(e entry) bool { return e.id == p.ID }) {
				return
			}
			s.takeLocked(s.cells.at(r.index), t, stamp{now, p.ID}, c)
			if !c.Limit.Algorithm.HasLog() {
				t.markRefund(Permit{ID: p.ID, At: time.UnixMilli(now)}, c.Cost) // a counter knows a charge by a mark
			}
		})
		s.mu.Unlock()
	}
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
	r, s, now := m.lockOne(&c)
	defer s.mu.Unlock()
	r.index = s.findLocked(&r.id, r.hash)
	if r.index == noCell && absent == addAbsent {
		r.index = s.addLocked(r.id, r.hash, c.Source, now)
	}
	if s.expandMirroredLocked(&r, now); r.index == noCell {
		return
	}
	s.changeLocked(r.index, c.Limit, func(t *keyState) {
		t.advance(now, c.Limit)
		change(t, now)
	})
}

// Inspect implements AdminStore.
func (m *Memory) Inspect(_ context.Context, claims []Claim) (Inspection, error) {
	if err := CheckClaims(claims); err != nil {
		return Inspection{}, err
	}
	var buf [inlineClaims]cellRef
	refs := m.refs(claims, buf[:0])
	locked, now := m.lock(refs)
	defer m.unlock(locked)
	in := Inspection{At: time.UnixMilli(now), Statuses: make([]KeyStatus, len(claims))}
	for i := range refs {
		l, most := refs[i].claim.Limit, refs[i].claim.Limit.Capacity()
		in.Statuses[i] = KeyStatus{Rate: l.Rate, Capacity: most, Remaining: most, Allowed: most}
		m.shards[refs[i].shard].inspectLocked(&refs[i], now, &in.Statuses[i])
	}
	return in, nil
}

// inspectLocked sets status to the status of r's key.
func (s *shard) inspectLocked(r *cellRef, now int64, status *KeyStatus) {
	if s.lookLocked(r, now); r.index == noCell {
		return
	}
	status.Overflow = s.cells.at(r.index).id != r.id
	s.changeLocked(r.index, r.claim.Limit, func(t *keyState) { t.inspect(now, r.claim.Limit, status) })
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

// ErrNotHeld reports that Renew was called for a permit that is no longer held: its lease
// expired, or it was refunded.
var ErrNotHeld = errors.New("permit no longer held")

// An AdminStore is a Store with operations for operators (Inspect, Reset, Grant, Ban), for
// holders of concurrent permits (Renew) and for permits that another event returns (Return). Memory and redisstore.Store are AdminStores.
type AdminStore interface {
	Store

	// Renew restarts the leases of the permits that p identifies. All claims must be of
	// Concurrent limits. It returns ErrNotHeld if at least one permit is no longer held;
	// the others are renewed.
	Renew(ctx context.Context, claims []Claim, p Permit) error

	// Inspect returns the status of each claim's key under its limit, without changing
	// it. Cost and Value of the claims are ignored.
	Inspect(ctx context.Context, claims []Claim) (Inspection, error)

	// Reset deletes all state of these claims' keys under their limits, including bans.
	Reset(ctx context.Context, claims []Claim) error

	// Return returns all permits that were noted under subject in limits, the windows of one
	// limit, as Refund does. However many calls there are at a time, each permit is returned
	// once. It reports of how many decisions permits were returned. A key may have another
	// rate than others: then limits has both, with the same name.
	Return(ctx context.Context, limits []*Limit, subject Key) (decisions int, err error)

	// StartRefund, StartReset and StartReturn are Refund, Reset and Return without waiting: when they return, what they
	// do is effective for later calls of this process, and wait returns the result.
	StartRefund(claims []Claim, p Permit) (wait func() error)
	StartReset(claims []Claim) (wait func() error)
	StartReturn(limits []*Limit, subject Key) (wait func() (decisions int, err error))

	// Grant returns Cost permits to each claim's key, as if the most recent ones had not
	// been taken. A key never gets more than the capacity of the limit.
	Grant(ctx context.Context, claims []Claim) error

	// Charge takes Cost permits more for each claim, whatever is left, because the request to which
	// the decision with the permit p granted them has cost more than was known. What is beyond the
	// capacity is debt: it leaves the window as other permits do, and nothing is granted before. Under
	// GCRA no more than the capacity is owed. Cost may exceed the capacity, up to MaxCount. No claim may
	// be shared with Redisson. Each claim of p is charged once. A store that cannot be reached takes what is missing when it is reached
	// again, which is no error, unless the process ends before. What a key has taken within a window must stay
	// below 2^32.
	Charge(ctx context.Context, claims []Claim, p Permit) error

	// Report counts what was granted for claims with the permit p elsewhere, or by this store before it lost it,
	// whatever is left; what it still counts, it does not count twice. A store that cannot be reached is told when it
	// is reached again.
	Report(claims []Claim, p Permit)

	// Ban makes the limits refuse all claims of these keys for d from now on; 0 ends a
	// ban. Permits continue to expire during a ban.
	Ban(ctx context.Context, claims []Claim, d time.Duration) error
}

// CheckBan returns an error that wraps ErrInvalidLimit if d is not a valid duration of a
// ban: whole milliseconds, from 0 to MaxWindow.
func CheckBan(d time.Duration) error {
	if d < 0 || d > MaxWindow || d%time.Millisecond != 0 {
		return errBan
	}
	return nil
}

var errBan = errors.Join(ErrInvalidLimit, errors.New("a ban lasts whole milliseconds, at most 366d"))

// A KeyStatus is the status of a key under a limit, for operators.
type KeyStatus struct {
	// Rate is the rate in force: that of the limit or, for a limiter that is shared
	// with Redisson, that of its config in Redis.
	Rate Rate
	// Capacity is the number of permits of an unused key.
	Capacity int64
	// Used is the number of permits that are taken now; for Cooldown, the number of
	// permits granted since the steps started. It may exceed Capacity after a rate was
	// lowered, and under a Conversion limit.
	Used int64
	// Remaining is the number of permits that are available now, ignoring a ban.
	Remaining int64
	// Allowed is the number of permits that may be taken at a time now: Capacity, or for
	// Conversion more by the subjects that were confirmed within the window, of which
	// Confirmed is the number.
	Allowed, Confirmed int64
	// NextIn is the time until one more permit is available if none is taken; 0 if all
	// are available. For Concurrent it is the time until a lease expires, although most
	// permits are refunded earlier.
	NextIn time.Duration
	// FullIn is the time until all permits are available.
	FullIn time.Duration
	// BannedFor is the remaining time of a ban; 0 without a ban.
	BannedFor time.Duration
	// Overflow is true if the store had no capacity to count this key separately: the
	// numbers are those of all such keys together. Grant and Reset do not change them.
	Overflow bool
	// Unreadable is true if the store holds data for this key that is not valid for such
	// a limit. All numbers are 0. Reset deletes the data.
	Unreadable bool
}

// An Inspection is the status of keys at one time.
type Inspection struct {
	At       time.Time   // time of the inspection, by the store's clock
	Statuses []KeyStatus // one for each claim, in the order of the claims
	// Repeated reports that the store did not reply in time and was asked once more.
	Repeated bool
}
