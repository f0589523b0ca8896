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

// MemoryOptions bound a Memory. The zero value means the defaults.
type MemoryOptions struct {
	// MaxKeys is how many keys are counted each by itself, all limits together;
	// 1,000,000 when zero. Beyond it new keys share overflow counts, a few per
	// limit, until others have come to rest.
	MaxKeys int
	// MaxBytes bounds the same by size; 256 MiB when zero. When it is reached,
	// counts get coarser: permits may come back later, but never earlier.
	MaxBytes int64
	// Clock is time.Now when nil.
	Clock func() time.Time
}

// A Memory is a Store of one process. It decides by one clock in whole
// milliseconds and keeps what it promises across concurrent callers: a decision
// locks the shards of all its keys, in order, so that it is taken as a whole.
//
// Its memory is bounded. A key of which everything has come back is forgotten
// when new keys come; a key that is being limited is never forgotten for
// others. Once half of the room is in use, a Source that has brought an eighth of all
// keys, or keys that take an eighth of the bytes, gets no more for itself: its further
// keys share counts of their own, and those of others still find room. A key takes
// about 104 bytes with one permit or a counter, and a log of more 32 for each entry and
// 24. A granted claim costs about 100 ns and does not allocate once its key is known. It
// starts no goroutine and needs no Close.
type Memory struct {
	clock  func() time.Time
	shards []shard
	seed   seed

	namesMu sync.Mutex // guards writing names
	names   atomic.Pointer[map[string]uint32]

	clockSkew atomic.Int64 // how far the clock here is ahead of the store's whose decisions are noted, in ms
}

const (
	maxShards     = 64
	chunkBits     = 7
	keysPerShard  = 1024 // at least, or there are fewer shards
	defaultKeys   = 1_000_000
	defaultMemory = 256 << 20
)

// NewMemory makes an empty Memory.
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
		s.cells.bits, s.blocks.bits, s.mirrored.slab.bits = chunkBits, chunkBits, chunkBits
	}
	return m
}

// monotonicClock is a clock that starts at start and no longer hears of clocks that are
// set: it adds the time that has really passed.
func monotonicClock(start time.Time) func() time.Time {
	return func() time.Time { return start.Add(time.Since(start)) }
}

// Take implements Store. It does not wait and looks at no ctx.
func (m *Memory) Take(_ context.Context, claims []Claim, d *Decision) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	var room [inlineClaims]cellRef
	refs := m.refs(claims, room[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.clock().UnixMilli()
	m.findOrAddLocked(claims, refs, now)
	m.evaluateLocked(claims, refs, now, d)
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

// grantLocked takes what claim asks for in cell i, and says in o what is left.
func (s *shard) grantLocked(i uint32, p stamp, claim *Claim, o *Outcome) {
	var t keyState
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	s.takeLocked(c, &t, p, *claim)
	s.saveLocked(c, &t, claim.Limit)
	if claim.Limit.Algorithm == Distinct {
		o.Remaining = max(0, t.remaining(p.at, claim.Limit))
		return // the value stands, so the same claim passes again
	}
	o.Remaining -= claim.Cost
	o.Wait = millis(t.wait(p.at, claim.Limit, claim.Cost))
}

// Peek implements Store.
func (m *Memory) Peek(_ context.Context, claims []Claim, d *Decision) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	var room [inlineClaims]cellRef
	refs := m.refs(claims, room[:0])
	locked := m.lock(refs)
	defer m.unlock(locked)

	now := m.clock().UnixMilli()
	for i := range refs {
		r, s := &refs[i], &m.shards[refs[i].shard]
		if s.mirrored.has(r.hash) {
			r.index = s.findOrAddLocked(r.id, r.hash, claims[i].Source, now)
			s.expandMirroredLocked(r, &claims[i], now)
			continue
		}
		r.index = s.findOrOverflowLocked(r.id, r.hash, claims[i].Source)
	}
	m.evaluateLocked(claims, refs, now, d)
	return nil
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
		m.refund(&claims[i], p)
	}
	return nil
}

// refund gives back one claim: to its key, or to the overflow that it was
// counted in when it was taken.
func (m *Memory) refund(c *Claim, p Permit) {
	r := m.ref(c)
	s := &m.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock().UnixMilli()
	for _, id := range [...]cellID{r.id, r.id.overflowID(0), r.id.overflowID(c.Source)} {
		i := s.findLocked(id, s.hash(id))
		if i == noCell {
			continue
		}
		var given int64
		s.changeLocked(i, c.Limit, func(t *keyState) {
			t.advance(now, c.Limit)
			given = t.refund(now, p, *c)
		})
		if given > 0 {
			return
		}
	}
}

// evaluateLocked fills d with what the cells say before anything is taken.
func (m *Memory) evaluateLocked(claims []Claim, refs []cellRef, now int64, d *Decision) {
	*d = Decision{Allowed: true, At: time.UnixMilli(now), Outcomes: d.Outcomes[:0]}
	for i := range claims {
		c, r := &claims[i], &refs[i]
		o := Outcome{Allowed: true, Remaining: c.Limit.Capacity()}
		if r.index != noCell {
			o = m.shards[r.shard].evaluateLocked(r.index, now, c, earlierCost(claims[:i], refs[:i], *r))
		}
		if !o.Allowed {
			d.Allowed = false
			d.Wait = max(d.Wait, o.Wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// evaluateLocked is what cell i says of a claim before which others of the same decision
// take so much of it.
func (s *shard) evaluateLocked(i uint32, now int64, claim *Claim, before int64) Outcome {
	var t keyState
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	t.advance(now, claim.Limit)
	s.saveLocked(c, &t, claim.Limit)
	left := t.remaining(now, claim.Limit) - before
	wait, stands := t.wait(now, claim.Limit, before+claim.Cost), false
	if claim.Limit.Algorithm == Distinct && t.hasValue(claim.Value) {
		wait, stands = 0, true
	}
	if now < t.bannedUntil {
		return Outcome{Banned: true, Wait: millis(max(wait, t.bannedUntil-now))}
	}
	return Outcome{Allowed: stands || claim.Cost <= left, Remaining: max(0, left), Wait: millis(wait)}
}

// earlierCost is what the claims before take from the same cell: two keys of one
// limit may share its overflow.
func earlierCost(claims []Claim, refs []cellRef, r cellRef) (cost int64) {
	for i, other := range refs {
		if other.shard == r.shard && other.index == r.index {
			cost += claims[i].Cost
		}
	}
	return cost
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Keys is how many keys are counted now, resting ones that are not forgotten
// yet included, and how many bytes they take by the Memory's own account.
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

// limitNumber is the number of the limit of that name; all limits of one name, one
// after another, have the same. It does not allocate for a known name.
func (m *Memory) limitNumber(name string) uint32 {
	if n, ok := (*m.names.Load())[name]; ok {
		return n
	}
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	names := maps.Clone(*m.names.Load())
	if n, ok := names[name]; ok {
		return n
	}
	n := uint32(len(names))
	names[name] = n
	m.names.Store(&names)
	return n
}
