package limiter

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

const (
	// cellBytes is the memory of a key: its cell, which includes the first entry of a
	// log, and its slot in the index, as measured.
	cellBytes  = 104
	entryBytes = 32
	blockBytes = 24 // memory of a longer log in addition to its entries
	// For each new key sweepStep cells are checked for expiry, or fullSweep if there is
	// no room for it. If each request has a new key, up to a quarter of the cells are
	// expired with a step of 4; with 2 it was half of them.
	sweepStep = 4
	fullSweep = 32
	// When 1/highWater of the capacity is in use, a source gets at most 1/sourceShare
	// of it for separately counted keys.
	highWater   = 2
	sourceShare = 8
)

// A shard is the part of a Memory that one mutex guards. No two are in the same cache lines.
type shard struct {
	maxKeys  int
	maxBytes int64
	seed     *seed

	mu       sync.Mutex // guards the fields below
	index    index      // of cells
	cells    slab[cell]
	blocks   slab[[]entry]
	bytes    int64
	mirrored mirrorTable
	// sources are the keys and bytes that each source has added.
	sources map[uint32]usage

	_ [lineSize - 24]byte
}

// A usage is an amount of keys and bytes.
type usage struct {
	keys  int
	bytes int64
}

// noCell is the number that stands for no cell.
const noCell = math.MaxUint32

// findLocked returns the number of the cell of id, whose hash is h; noCell if there is
// none.
func (s *shard) findLocked(id *cellID, h uint64) uint32 {
	return s.index.find(h, func(i uint32) bool { return s.cells.at(i).id == *id }).item - 1 // noCell if it is 0
}

// hash returns the hash of id in the index.
func (s *shard) hash(id cellID) uint64 { return hashUnder(id.limit, s.seed.hash(&id.key)) }

// hashOf returns the hash of cell i in the index.
func (s *shard) hashOf(i uint32) uint64 { return s.hash(s.cells.at(i).id) }

// findOrOverflowLocked returns the number of the cell of id; if there is none and there
// would be no room for it, that of its overflow cell. It is noCell if that does not exist
// either.
func (s *shard) findOrOverflowLocked(id *cellID, h uint64, source uint32) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		return i
	}
	if over, full := s.overflowIDLocked(*id, source); full {
		return s.findLocked(&over, s.hash(over))
	}
	return noCell
}

// lookLocked finds the cell that counts r, if there is one. A key that is only mirrored gets a cell.
func (s *shard) lookLocked(r *cellRef, now int64) {
	r.index = s.findOrOverflowLocked(&r.id, r.hash, r.claim.Source)
	s.expandMirroredLocked(r, now)
}

// overflowIDLocked returns the ID of the overflow cell that counts a new key, and true,
// if there is no room for a cell of its own; otherwise id and false.
func (s *shard) overflowIDLocked(id cellID, source uint32) (cellID, bool) {
	switch {
	case !s.hasRoomLocked():
		return id.overflowID(0), true
	case s.exceedsShareLocked(source):
		return id.overflowID(source), true
	}
	return id, false
}

// keysLocked returns the number of keys, including mirrored ones.
func (s *shard) keysLocked() int { return s.index.used + s.mirrored.index.used }

// exceedsShareLocked reports whether source has used its share of the capacity. Shares
// apply only when much of the capacity is in use.
func (s *shard) exceedsShareLocked(source uint32) bool {
	if source == 0 || highWater*s.keysLocked() < s.maxKeys && highWater*s.bytes < s.maxBytes {
		return false
	}
	u := s.sources[source]
	return sourceShare*u.keys >= s.maxKeys || sourceShare*u.bytes >= s.maxBytes
}

// findOrAddLocked returns the number of the cell of id and adds one if there is room. If
// the capacity is used up, all new keys of a limit share one overflow cell, and if source
// has used its share, its new keys share another one: a key with taken permits is never
// evicted. The cell is excluded from sweeps at now.
func (s *shard) findOrAddLocked(id *cellID, h uint64, source uint32, now int64) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		s.cells.at(i).pinLocked(now)
		return i
	}
	s.sweepLocked(now, sweepStep)
	over, full := s.overflowIDLocked(*id, source)
	if full {
		s.sweepLocked(now, fullSweep)
		over, full = s.overflowIDLocked(*id, source)
	}
	if full {
		id, h = &over, s.hash(over)
		if i := s.findLocked(id, h); i != noCell {
			s.cells.at(i).pinLocked(now)
			return i
		}
	}
	return s.addLocked(*id, h, source, now)
}

// pinLocked excludes c from sweeps at now, because a later claim of the same decision may
// sweep for room.
func (c *cell) pinLocked(now int64) { c.expiresAt = max(c.expiresAt, now+1) }

// hasRoomLocked reports whether there is room for another key.
func (s *shard) hasRoomLocked() bool {
	return s.keysLocked() < s.maxKeys && s.bytes+cellBytes <= s.maxBytes
}

// addLocked adds a cell for id, which must not have one.
func (s *shard) addLocked(id cellID, h uint64, source uint32, now int64) uint32 {
	i := s.cells.add()
	*s.cells.at(i) = cell{id: id, source: source, expiresAt: now + 1, floor: now - 1}
	s.index.add(h, i, s.hashOf)
	s.accountLocked(source, 1, cellBytes)
	return i
}

// accountLocked adds keys and bytes, which may be negative, to the totals and to the
// usage of source.
func (s *shard) accountLocked(source uint32, keys int, bytes int64) {
	s.bytes += bytes
	if source == 0 {
		return
	}
	u := s.sources[source]
	u.keys += keys
	u.bytes += bytes
	if u.keys == 0 {
		delete(s.sources, source)
		return
	}
	s.sources[source] = u
}

// sweepLocked checks the next n cells and removes the expired ones. A new cell would
// count the same.
func (s *shard) sweepLocked(now int64, n uint32) {
	s.cells.sweep(n, func(i uint32, c *cell) {
		if c.expiresAt != 0 && c.expiresAt <= now {
			s.removeLocked(i, c)
		}
	})
	if s.mirrored.index.used > 0 {
		s.bytes -= mirrorEntryBytes * s.mirrored.sweep(now, n)
	}
}

// removeLocked removes cell i, which is c.
func (s *shard) removeLocked(i uint32, c *cell) {
	if c.block > 0 {
		s.removeBlockLocked(c)
	}
	s.index.remove(s.index.find(s.hash(c.id), func(item uint32) bool { return item == i }), s.hashOf)
	s.accountLocked(c.source, -1, -cellBytes)
	s.cells.remove(i)
}

// A stamp identifies the permits of one decision: the time at which they were taken and
// the ID of the Permit.
type stamp struct {
	at int64
	id [16]byte
}

// takeLocked takes the permits of claim in t, the state of c. If the capacity of the
// shard or the share of the key's source is used up, the permits are added to the newest
// entry instead of a new one, so that some permits expire later, but never earlier.
func (s *shard) takeLocked(c *cell, t *keyState, p stamp, claim *Claim) {
	n := len(t.entries)
	if n == 0 && c.block == 0 && claim.Limit.Algorithm.HasLog() {
		t.entries = c.inline[:0]
	}
	maxLog := claim.Limit.Algorithm.traits().maxLog
	if n < cap(t.entries) || int64(n) >= maxLog {
		t.take(p.at, claim, p.id)
		return
	}
	more, moved := min(int64(max(1, n/2)), maxLog-int64(n)), int64(0)
	if c.block == 0 {
		moved = blockBytes + entryBytes*int64(n)
	}
	if n > 0 && (n >= maxEntries || s.bytes+moved+entryBytes*more > s.maxBytes || s.exceedsShareLocked(c.source)) {
		switch a := claim.Limit.Algorithm; {
		case a.HasConversion():
			t.takeIntoNewestBucket(p.at, claim.Limit, claim.Cost)
			return
		case a.HasValues():
			t.supersede(claim.Value.prefix())
		}
		t.addToNewest(p.at, claim.Cost)
		return
	}
	entries := make([]entry, n, int64(n)+more)
	copy(entries, t.entries)
	t.entries = entries
	t.take(p.at, claim, p.id)
}

// changeLocked calls change with the state of cell i and stores the result.
func (s *shard) changeLocked(i uint32, l *Limit, change func(t *keyState)) {
	var t keyState
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	change(&t)
	s.saveLocked(c, &t, l)
}

// inlineClaims is the number of claims of one decision that are processed without a heap
// allocation.
const inlineClaims = 4

// A cellRef locates the cell of a claim.
type cellRef struct {
	claim *Claim
	id    cellID
	hash  uint64
	shard uint32
	index uint32 // in the shard's cells; noCell if there is no cell
}

// lockOne locks the shard of c's key. It returns the ref of the key, whose cell it does not look for, the shard and the time.
func (m *Memory) lockOne(c *Claim) (r cellRef, s *shard, now int64) {
	m.locate(c, &r)
	s = &m.shards[r.shard]
	s.mu.Lock()
	return r, s, m.now()
}

// locate makes r, where it lies, the ref of c.
func (m *Memory) locate(c *Claim, r *cellRef) {
	h := m.seed.hash(&c.Key)
	r.claim, r.id.limit, r.id.key = c, m.numbers.number(c.Limit), c.Key
	r.hash, r.shard, r.index = hashUnder(r.id.limit, h), uint32(h>>48)&uint32(len(m.shards)-1), noCell
}

// A shardSet is a set of shards, one bit for each.
type shardSet uint64

// refs appends one cellRef for each claim to refs.
func (m *Memory) refs(claims []Claim, refs []cellRef) []cellRef {
	n := len(refs)
	refs = slices.Grow(refs, len(claims))[:n+len(claims)]
	for i := range claims {
		m.locate(&claims[i], &refs[n+i])
	}
	return refs
}

// lock locks the shards of refs, each once and in ascending order, so that concurrent decisions cannot deadlock, and
// returns the time.
func (m *Memory) lock(refs []cellRef) (locked shardSet, now int64) {
	for i := range refs {
		locked |= 1 << refs[i].shard
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return locked, m.now()
}

func (m *Memory) unlock(locked shardSet) {
	for rest := locked; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(uint64(rest))].mu.Unlock()
	}
}

// An index finds the numbers of a slab's values by hash. It is a hash table with open
// addressing and linear probing, 4 bytes a slot. A slot holds a number plus one and, in
// the bits that numbers do not need, a part of the hash, so that values with another hash
// are rarely compared.
//
// Numbers are always smaller than the number of slots: a slab returns the smallest number
// first, and never more of them than the index can hold.
type index struct {
	slots []uint32 // a power of two of them; 0 is an empty slot
	used  int
}

// A probe is the result of a search.
type probe struct {
	slot uint32
	item uint32 // number that was found, plus one; 0 if there is none
}

// find finds the item of hash h for which is returns true.
func (i *index) find(h uint64, is func(item uint32) bool) probe {
	if len(i.slots) == 0 {
		return probe{}
	}
	mask := uint32(len(i.slots) - 1)
	tag := uint32(h>>32) &^ mask
	for place := uint32(h) & mask; ; place = (place + 1) & mask {
		if v := i.slots[place]; v == 0 || v&^mask == tag && is(v&mask-1) {
			return probe{place, v & mask}
		}
	}
}

// add adds an item with hash h. hashOf returns the hash of another item.
func (i *index) add(h uint64, item uint32, hashOf func(item uint32) uint64) {
	if 8*(i.used+1) > 7*len(i.slots) {
		i.grow(hashOf)
	}
	i.put(h, item)
	i.used++
}

func (i *index) put(h uint64, item uint32) {
	mask := uint32(len(i.slots) - 1)
	place := uint32(h) & mask
	for i.slots[place] != 0 {
		place = (place + 1) & mask
	}
	i.slots[place] = uint32(h>>32)&^mask | (item + 1)
}

// grow doubles the number of slots.
func (i *index) grow(hashOf func(item uint32) uint64) {
	old, mask := i.slots, uint32(len(i.slots)-1)
	i.slots = make([]uint32, max(8, 2*len(old)))
	for _, v := range old {
		if v != 0 {
			item := v&mask - 1
			i.put(hashOf(item), item)
		}
	}
}

// remove removes the item that p has found. Items that were displaced by it move back, so
// that no search ends too early.
func (i *index) remove(p probe, hashOf func(item uint32) uint64) {
	mask := uint32(len(i.slots) - 1)
	hole := p.slot
	for place := hole; ; {
		place = (place + 1) & mask
		v := i.slots[place]
		if v == 0 {
			break
		}
		ideal := uint32(hashOf(v&mask-1)) & mask
		if (place-ideal)&mask >= (place-hole)&mask {
			i.slots[hole] = v
			hole = place
		}
	}
	i.slots[hole] = 0
	i.used--
}

// A slab allocates values of one type and identifies each by a number until it is
// removed. It grows by one chunk at a time, so that growing copies nothing and leaves no
// garbage; it never shrinks. The garbage collector does not scan values without pointers.
type slab[T any] struct {
	chunks []*[chunkSize]T
	used   uint32   // numbers that were ever allocated
	next   uint32   // number at which the next sweep starts
	free   []uint32 // removed numbers, for reuse
}

// chunkSize is the number of values in a chunk.
const chunkSize = 128

// at returns the value of number i.
func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/chunkSize][i%chunkSize] }

// add allocates a number. Its value is zero.
func (s *slab[T]) add() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used/chunkSize == uint32(len(s.chunks)) {
		s.chunks = append(s.chunks, new([chunkSize]T))
	}
	s.used++
	return s.used - 1
}

// remove frees a number and clears its value.
func (s *slab[T]) remove(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}

// sweep calls check for the next n numbers, which it may remove. Values of removed numbers are zero.
func (s *slab[T]) sweep(n uint32, check func(i uint32, v *T)) {
	for range min(n, s.used) {
		if s.next >= s.used {
			s.next = 0
		}
		check(s.next, s.at(s.next))
		s.next++
	}
}
