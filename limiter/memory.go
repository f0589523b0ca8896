package limiter

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// MemoryOptions configure a Memory. The zero value means the defaults.
type MemoryOptions struct {
	// MaxKeys is the maximum number of keys with counts of their own, of all limits
	// together; 1,000,000 if zero. Beyond it, new keys share overflow counts, a few per
	// limit, until the counts of other keys have expired.
	MaxKeys int
	// MaxBytes is the maximum size of the counts; 256 MiB if zero. When it is reached,
	// entries are merged: permits may return later, but never earlier.
	MaxBytes int64
	// Clock is the clock; time.Now if nil.
	Clock func() time.Time
}

// A Memory is a Store for one process. It uses one clock in whole milliseconds. A decision
// locks the shards of all its keys, in order, so that it is atomic also with concurrent
// callers.
//
// Its memory is bounded. Keys whose permits have all returned are evicted when new keys
// come; other keys are never evicted. Once half of the capacity is in use, a Source with an
// eighth of all keys or bytes gets no more cells: its further keys share counts, so that
// there is room for keys of other sources. A key takes about 104 bytes with one permit or a
// counter, plus 24 bytes and 32 for each entry of a longer log. A granted claim takes about
// 100 ns and does not allocate if its key is known. A Memory starts no goroutine and needs
// no Close.
type Memory struct {
	clock  func() time.Time
	shards []shard
	seed   seed

	naming sync.Mutex // guards changes of names
	names  atomic.Pointer[map[string]uint32]

	ahead atomic.Int64 // how far this clock is ahead of that of the store whose decisions are noted, in ms
}

const (
	maxShards     = 64
	chunkBits     = 7
	keysPerShard  = 1024 // minimum; small memories have fewer shards
	defaultKeys   = 1_000_000
	defaultMemory = 256 << 20
)

// NewMemory returns an empty Memory.
func NewMemory(o MemoryOptions) *Memory {
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultKeys
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMemory
	}
	n := 1
	for n < maxShards && o.MaxKeys/(2*n) >= keysPerShard {
		n *= 2
	}
	m := &Memory{clock: o.Clock, shards: make([]shard, n), seed: seed{rand.Uint64(), rand.Uint64()}}
	if m.clock == nil {
		m.clock = monotonicClock(time.Now())
	}
	m.names.Store(&map[string]uint32{})
	for i := range m.shards {
		s := &m.shards[i]
		s.maxKeys, s.maxBytes = max(1, o.MaxKeys/n), max(cellBytes, o.MaxBytes/int64(n))
		s.seed, s.sources = &m.seed, make(map[uint32]usage)
		s.cells.bits, s.blocks.bits, s.notes.slab.bits = chunkBits, chunkBits, chunkBits
	}
	return m
}

// monotonicClock returns a clock that begins at start and is independent of changes of the
// system clock.
func monotonicClock(start time.Time) func() time.Time {
	return func() time.Time { return start.Add(time.Since(start)) }
}

// Take implements Store. It does not wait, and ignores ctx.
func (m *Memory) Take(_ context.Context, claims []Claim, d *Decision) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	var room [inline]cellRef
	refs := m.refs(claims, room[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.clock().UnixMilli()
	m.openLocked(claims, refs, now)
	m.weighLocked(claims, refs, now, d)
	if !d.Allowed || len(claims) == 0 {
		return nil
	}
	binary.LittleEndian.PutUint64(d.Permit.ID[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(d.Permit.ID[8:], rand.Uint64())
	d.Permit.At = d.At
	for i := range claims {
		m.shards[refs[i].shard].grantLocked(refs[i].index, stamp{now, d.Permit.ID}, &claims[i], &d.Outcomes[i])
	}
	return nil
}

// grantLocked takes the permits of claim in cell i, and stores what is left in o.
func (s *shard) grantLocked(i uint32, p stamp, claim *Claim, o *Outcome) {
	var t tally
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	s.takeLocked(c, &t, p, *claim)
	s.saveLocked(c, &t, claim.Limit)
	if claim.Limit.Algorithm == Distinct {
		o.Remaining = max(0, t.left(p.at, claim.Limit))
		return // the value still counts, so the same claim would be granted again
	}
	o.Remaining -= claim.Cost
	o.Wait = millis(t.wait(p.at, claim.Limit, claim.Cost))
}

// Peek implements Store.
func (m *Memory) Peek(_ context.Context, claims []Claim, d *Decision) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	var room [inline]cellRef
	refs := m.refs(claims, room[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.clock().UnixMilli()
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		if s.notes.has(r.hash) {
			r.index = s.openLocked(r.id, r.hash, claims[i].Source, now)
			s.expandLocked(r, &claims[i], now)
			continue
		}
		r.index = s.sharedLocked(r.id, r.hash, claims[i].Source)
	}
	m.weighLocked(claims, refs, now, d)
	return nil
}

// Refund implements Store.
func (m *Memory) Refund(_ context.Context, claims []Claim, p Permit) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	if p.IsZero() {
		return nil
	}
	for i := range claims {
		m.refund(&claims[i], p)
	}
	return nil
}

// refund refunds one claim: to its key, or to the overflow count in which it was counted.
func (m *Memory) refund(c *Claim, p Permit) {
	r := m.ref(c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock().UnixMilli()
	for _, id := range [...]cellID{r.id, r.id.overflow(0), r.id.overflow(c.Source)} {
		i := s.findLocked(id, s.hash(id))
		if i == noCell {
			continue
		}
		var given int64
		s.changeLocked(i, c.Limit, func(t *tally) {
			t.advance(now, c.Limit)
			given = t.refund(now, p, *c)
		})
		if given > 0 {
			return
		}
	}
}

// weighLocked fills d with the results of the cells before permits are taken.
func (m *Memory) weighLocked(claims []Claim, refs []cellRef, now int64, d *Decision) {
	*d = Decision{Allowed: true, At: time.UnixMilli(now), Outcomes: d.Outcomes[:0]}
	for i := range claims {
		c, r := &claims[i], &refs[i]
		o := Outcome{Allowed: true, Remaining: c.Limit.Most()}
		if r.index != noCell {
			o = m.shards[r.shard].weighLocked(r.index, now, c, earlier(claims[:i], refs[:i], *r))
		}
		if !o.Allowed {
			d.Allowed = false
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// weighLocked returns the result of cell i for a claim, if earlier claims of the same
// decision take before permits from it.
func (s *shard) weighLocked(i uint32, now int64, claim *Claim, before int64) Outcome {
	var t tally
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	t.advance(now, claim.Limit)
	s.saveLocked(c, &t, claim.Limit)
	left := t.left(now, claim.Limit) - before
	wait, stands := t.wait(now, claim.Limit, before+claim.Cost), false
	if claim.Limit.Algorithm == Distinct && t.stands(claim.Value) {
		wait, stands = 0, true
	}
	if now < t.banned {
		return Outcome{Banned: true, Wait: millis(max(wait, t.banned-now))}
	}
	return Outcome{Allowed: stands || claim.Cost <= left, Remaining: max(0, left), Wait: millis(wait)}
}

// earlier returns the cost of the earlier claims on the same cell: two keys of one limit
// may share its overflow.
func earlier(claims []Claim, refs []cellRef, r cellRef) (cost int64) {
	for i, other := range refs {
		if other.shard == r.shard && other.index == r.index {
			cost += claims[i].Cost
		}
	}
	return cost
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Keys returns the number of keys, including those whose permits have returned but that
// were not evicted yet, and the bytes that they use, by the Memory's own accounting.
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

// number returns the number for the name of a limit; all limits with the same name have the
// same number. It does not allocate for a known name.
func (m *Memory) number(name string) uint32 {
	if n, ok := (*m.names.Load())[name]; ok {
		return n
	}
	m.naming.Lock()
	defer m.naming.Unlock()
	names := maps.Clone(*m.names.Load())
	if n, ok := names[name]; ok {
		return n
	}
	n := uint32(len(names))
	names[name] = n
	m.names.Store(&names)
	return n
}
