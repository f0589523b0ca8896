package limiter

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// MemoryOptions are the options of a Memory. Zero values mean the defaults.
type MemoryOptions struct {
	// MaxKeys is the maximum number of keys that are counted separately, for all limits
	// together; by default 1,000,000. Beyond it new keys share overflow counts, a few
	// for each limit, until other keys have expired.
	MaxKeys int
	// MaxBytes is the maximum size of the keys' state in bytes; by default 256 MiB. When
	// it is reached, counts become coarser: permits may expire later, but never earlier. Notes
	// take up to an eighth of it besides; what is beyond cannot be returned by its subject.
	MaxBytes int64
	// Clock returns the current time; by default time.Now.
	Clock func() time.Time
}

// A Memory is an AdminStore within one process. Its clock has a resolution of one
// millisecond. It is safe for concurrent use: a decision locks the shards of all its
// keys, in ascending order, so that it is atomic.
//
// Its memory is bounded. A key whose permits have all expired is removed when new keys
// are added; a key with taken permits is never evicted to make room for others. Once half
// of the capacity is in use, a Source that owns an eighth of all keys or bytes gets no
// more: its further keys share overflow counts, so that keys of other sources still find
// room. What a key has taken of an overflow count is not in the count of its own that it gets
// when there is room, nor in those of other sources: each of them may grant the rate once.
//
// A key takes about 104 bytes with one permit or a counter; a longer log takes another 24
// bytes and 32 bytes for each entry. A granted claim costs about 100 ns and does not
// allocate once its key is known. A Memory starts no goroutine and need not be closed.
type Memory struct {
	now     func() int64 // the current time in milliseconds since 1970
	shards  []shard
	seed    seed
	numbers limitNumbers
	notes   *notes

	clockSkew atomic.Int64 // milliseconds by which the local clock is ahead of the mirrored store's
}

const (
	maxShards     = 64
	keysPerShard  = 1024 // minimum; otherwise there are fewer shards
	defaultKeys   = 1_000_000
	defaultMemory = 256 << 20
)

// NewMemory returns an empty Memory.
func NewMemory(o MemoryOptions) *Memory {
	o.MaxKeys, o.MaxBytes = cmp.Or(max(0, o.MaxKeys), defaultKeys), cmp.Or(max(0, o.MaxBytes), defaultMemory)
	n := 1
	for n < maxShards && o.MaxKeys/(2*n) >= keysPerShard {
		n *= 2
	}
	m := &Memory{now: millisOf(o.Clock), shards: make([]shard, n), seed: seed{rand.Uint64(), rand.Uint64()}, notes: newNotes(o.MaxBytes)}
	m.numbers.names.Store(&map[string]uint32{})
	for i := range m.shards {
		s := &m.shards[i]
		s.maxKeys, s.maxBytes = max(1, o.MaxKeys/n), max(cellBytes, o.MaxBytes/int64(n))
		s.seed, s.sources = &m.seed, make(map[uint32]usage)
	}
	return m
}

// millisOf returns clock in milliseconds since 1970. If it is nil, it is one that starts now and ignores later changes of
// the system clock: it adds the monotonic time that has passed.
func millisOf(clock func() time.Time) func() int64 {
	if clock != nil {
		return func() int64 { return clock().UnixMilli() }
	}
	start := time.Now()
	began := start.UnixNano()
	return func() int64 { return (began + int64(time.Since(start))) / int64(time.Millisecond) }
}

// Take implements Store. It does not block and ignores ctx.
func (m *Memory) Take(_ context.Context, claims []Claim, d *Decision) error {
	own, others := CutDeciding(claims)
	if err := CheckClaims(own); err != nil {
		return err
	}
	m.take(own, others, d)
	if d.Allowed {
		m.note(claims, d) // without a shard's mutex: Return holds that of the notes first
	}
	return nil
}

// take takes the permits of own, which is group 0, and then those of each other group. All count from one time, the
// permit's: one that is older than a key has not been taken of it.
func (m *Memory) take(own, others []Claim, d *Decision) {
	var buf [inlineClaims]cellRef
	refs := m.refs(own, buf[:0])
	for rest := others; len(rest) > 0; {
		var group []Claim
		if group, rest = CutGroup(rest); CheckGroup(group, len(refs)) == nil {
			refs = m.refs(group, refs)
		}
	}
	locked, now := m.lock(refs)
	defer m.unlock(locked)
	m.takeGroupLocked(refs[:len(own)], now, nil, d)
	if d.Allowed && len(others) > 0 {
		m.takeOthersLocked(refs[len(own):], others, now, d)
	}
}

// takeOthersLocked takes the permits of each group of others, of which refs has those that are valid.
func (m *Memory) takeOthersLocked(refs []cellRef, others []Claim, now int64, d *Decision) {
	for len(others) > 0 {
		var group []Claim
		if group, others = CutGroup(others); len(refs) == 0 || refs[0].claim != &group[0] { // it is not valid
			d.AddFailed(len(group))
			continue
		}
		beside := Decision{Outcomes: d.Outcomes[len(d.Outcomes):]}
		m.takeGroupLocked(refs[:len(group)], now, &d.Permit, &beside)
		refs = refs[len(group):]
		d.Outcomes = append(d.Outcomes, beside.Outcomes...)
		if d.Permit.IsZero() {
			d.Permit = beside.Permit
		}
	}
}

// takeGroupLocked takes the permits of one group under the permit p, or a new one if it is nil or zero.
func (m *Memory) takeGroupLocked(refs []cellRef, now int64, p *Permit, d *Decision) {
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		r.index = s.findOrAddLocked(&r.id, r.hash, r.claim.Source, now)
		s.expandMirroredLocked(r, now)
	}
	var t keyState
	m.evaluateLocked(refs, now, d, &t)
	if !d.Allowed || len(refs) == 0 {
		return
	}
	if p != nil && !p.IsZero() {
		d.Permit = *p
	} else {
		d.Permit.issue(d.At, m.placeOfAll(refs))
	}
	for i := range refs {
		s, claim := &m.shards[refs[i].shard], refs[i].claim
		c := s.cells.at(refs[i].index)
		if len(refs) > 1 {
			s.loadLocked(c, &t)
			t.advance(now, claim.Limit) // another claim may count in this cell, under another version of the limit
		}
		s.takeLocked(c, &t, stamp{now, d.Permit.ID}, claim)
		t.updateOutcome(&d.Outcomes[i], now, claim)
		s.saveLocked(c, &t, claim.Limit)
	}
}

// updateOutcome updates o, the outcome of claim, to the state after its permits were taken at now.
func (s *keyState) updateOutcome(o *Outcome, now int64, claim *Claim) {
	o.Remaining -= claim.Cost
	if a := claim.Limit.Algorithm; a.HasConversion() || a.HasValues() { // there may have been more than the capacity
		o.Remaining = max(0, s.remaining(now, claim.Limit))
	}
	if o.Remaining < claim.Cost && !claim.Limit.Algorithm.HasValues() { // an active value would be granted again
		o.Wait = millis(s.wait(now, claim.Limit, claim.Cost))
	}
}

// Peek implements Store.
func (m *Memory) Peek(_ context.Context, claims []Claim, d *Decision) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	var buf [inlineClaims]cellRef
	refs := m.refs(claims, buf[:0])
	locked, now := m.lock(refs)
	defer m.unlock(locked)
	for i := range refs {
		m.shards[refs[i].shard].lookLocked(&refs[i], now)
	}
	var t keyState
	m.evaluateLocked(refs, now, d, &t)
	return nil
}

// evaluateLocked fills d with the outcomes of the claims of refs before anything is taken, and t, which is zero, with the
// state of the last key.
func (m *Memory) evaluateLocked(refs []cellRef, now int64, d *Decision, t *keyState) {
	outcomes := slices.Grow(d.Outcomes[:0], len(refs))[:len(refs)]
	*d = Decision{}
	d.Allowed, d.At, d.Outcomes = true, time.UnixMilli(now), outcomes
	for i := range refs {
		claim, r, o := refs[i].claim, &refs[i], &outcomes[i]
		*o = Outcome{}
		o.Allowed, o.Remaining = true, claim.Limit.Capacity()
		if r.index != noCell {
			s := &m.shards[r.shard]
			c := s.cells.at(r.index)
			s.loadLocked(c, t)
			t.advance(now, claim.Limit)
			s.saveLocked(c, t, claim.Limit)
			t.outcome(now, claim, earlierCost(refs[:i], r), o)
		}
		if !o.Allowed {
			d.Allowed = false
			d.Wait = max(d.Wait, o.Wait)
		}
	}
}

// outcome fills o with the outcome of a claim at now. before is the cost of the earlier claims of the same decision that
// are counted in s. If together they need more than there can ever be, they wait until their keys may have cells of
// their own. advance must have been called.
func (s *keyState) outcome(now int64, claim *Claim, before int64, o *Outcome) {
	left, wait := s.remaining(now, claim.Limit)-before, int64(0)
	isFree := claim.Cost <= left || claim.Limit.Algorithm.HasValues() && s.hasValue(claim.Value)
	switch {
	case isFree:
	case before+claim.Cost > claim.Limit.Capacity():
		wait = claim.Limit.Horizon().Milliseconds()
	default:
		wait = s.wait(now, claim.Limit, before+claim.Cost)
	}
	if now < s.bannedUntil {
		*o = Outcome{Banned: true, Wait: millis(max(wait, s.bannedUntil-now))}
		return
	}
	o.Allowed, o.Remaining, o.Wait = isFree, max(0, left), millis(wait)
}

// earlierCost returns the sum of the costs of those earlier claims that are counted in
// the same cell as r: two keys of one limit may share its overflow cell.
func earlierCost(refs []cellRef, r *cellRef) (cost int64) {
	for i := range refs {
		if refs[i].shard == r.shard && refs[i].index == r.index {
			cost += refs[i].claim.Cost
		}
	}
	return cost
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Keys returns the number of keys, including expired ones that are not removed yet, and
// the number of bytes that they take by the accounting of the Memory.
func (m *Memory) Keys() (keys int, bytes int64) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		keys += s.keysLocked()
		bytes += s.bytes
		s.mu.Unlock()
	}
	return keys, bytes
}

// issue makes p the Permit of a decision made at the time at, whose permits are counted in cells of a place.
func (p *Permit) issue(at time.Time, counted place) {
	binary.LittleEndian.PutUint64(p.ID[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(p.ID[8:], rand.Uint64()&^placeMask|uint64(counted))
	p.At = at
}

// A place says which cells count the permits of a decision. It is a part of the permit's ID, because a counter cannot tell
// whether it has counted a permit.
type place uint64

const (
	severalPlaces place = iota
	ownCells
	overflowCells       // of all sources
	sourceOverflowCells // of one source
	placeMask           = 3
)

// placeOf returns the place of c, the cell that counts r.
func (r *cellRef) placeOf(c *cell) place {
	switch c.id {
	case r.id:
		return ownCells
	case r.id.overflowID(0):
		return overflowCells
	}
	return sourceOverflowCells
}

// placeOfAll returns the place of the cells of refs.
func (m *Memory) placeOfAll(refs []cellRef) (all place) {
	for i := range refs {
		r := &refs[i]
		one := r.placeOf(m.shards[r.shard].cells.at(r.index))
		if i > 0 && one != all {
			return severalPlaces
		}
		all = one
	}
	return all
}

// mayCount reports whether a cell of a place may have counted the permits of p for c. What is found by its ID may be of
// another store.
func (p *Permit) mayCount(c *Claim, in place) bool {
	counted := place(p.ID[8] & placeMask)
	return counted == in || counted == severalPlaces || !c.Limit.Algorithm.countsPermits()
}

// Refund implements Store.
func (m *Memory) Refund(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	if p.IsZero() {
		return nil
	}
	for i := range claims {
		c := &claims[i]
		if c.Limit.Algorithm.HasConversion() && !m.notes.remove(cellID{limit: m.numbers.number(c.Limit), key: c.Value}, c.Key, p) {
			continue // returned, or not noted
		}
		m.refund(c, p)
	}
	return nil
}

// refund returns the permits of one claim: to its key, or to the overflow cell that
// counted them. It reports how many it returned.
func (m *Memory) refund(c *Claim, p Permit) (refunded int64) {
	r, s, now := m.lockOne(c)
	defer s.mu.Unlock()
	for n, id := range [...]cellID{r.id, r.id.overflowID(0), r.id.overflowID(c.Source)} {
		i := s.findLocked(&id, s.hash(id))
		if i == noCell || !p.mayCount(c, ownCells+place(n)) {
			continue
		}
		s.changeLocked(i, c.Limit, func(t *keyState) {
			t.advance(now, c.Limit)
			refunded = t.refund(now, p, c)
		})
		if refunded > 0 {
			return refunded
		}
	}
	return 0
}
