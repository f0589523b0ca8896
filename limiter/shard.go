package limiter

import (
	"math"
	"sync"
)

const (
	// cellBytes is what one key costs beside its entries, the first of a log
	// excepted: its cell and its place in the index, as measured.
	cellBytes  = 104
	entryBytes = 32
	blockBytes = 24 // a longer log, beside its entries
	// sweepStep cells are looked at for each new key, fullSweep when there is
	// no room for it. With 4, a quarter of the cells at most have come to rest, where
	// each request brings a new key; with 2 it was half of them.
	sweepStep = 4
	fullSweep = 32
	// When 1/pressed of the room is in use, a source gets no more than 1/sourceShare
	// of it for keys of their own.
	highWater   = 2
	sourceShare = 8
)

// A shard is the part of a Memory that one lock guards.
type shard struct {
	maxKeys  int
	maxBytes int64
	seed     *seed

	mu        sync.Mutex // guards what follows
	index     index      // of cells
	cells     slab[cell]
	blocks    slab[[]entry]
	nextSweep uint32 // the number of the cell where the sweep goes on
	bytes     int64
	mirrored  mirrorTable
	// sources are how much of that belongs to keys that each source brought first.
	sources map[uint32]usage
}

// A usage is how much room something takes.
type usage struct {
	keys  int
	bytes int64
}

// noCell is the number of no cell.
const noCell = math.MaxUint32

// findLocked returns the number of the cell that counts id, whose hash is h, or
// nowhere if there is none yet.
func (s *shard) findLocked(id cellID, h uint64) uint32 {
	for p := s.index.first(h); p.item > 0; p = s.index.next(h, p) {
		if s.cells.at(p.item-1).id == id {
			return p.item - 1
		}
	}
	return noCell
}

// hash is where to look for id.
func (s *shard) hash(id cellID) uint64 { return hashUnder(id.limit, s.seed.hash(&id.key)) }

// hashOf is where cell i is looked for.
func (s *shard) hashOf(i uint32) uint64 { return s.hash(s.cells.at(i).id) }

// findOrOverflowLocked returns the number of the cell that counts id: its own, or the
// overflow cell where it has none and would get none.
func (s *shard) findOrOverflowLocked(id cellID, h uint64, source uint32) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		return i
	}
	if over, without := s.overflowIDLocked(id, source); without {
		return s.findLocked(over, s.hash(over))
	}
	return noCell
}

// overflowIDLocked names what a new key is counted under that gets no cell of its own.
func (s *shard) overflowIDLocked(id cellID, source uint32) (cellID, bool) {
	switch {
	case !s.hasRoomLocked():
		return id.overflowID(0), true
	case s.exceedsShareLocked(source):
		return id.overflowID(source), true
	}
	return id, false
}

// keysLocked is how many keys there are, noted ones included.
func (s *shard) keysLocked() int { return s.index.used + s.mirrored.index.used }

// exceedsShareLocked reports whether source has had its share of the room, where room has
// become scarce.
func (s *shard) exceedsShareLocked(source uint32) bool {
	if source == 0 || highWater*s.keysLocked() < s.maxKeys && highWater*s.bytes < s.maxBytes {
		return false
	}
	its := s.sources[source]
	return sourceShare*its.keys >= s.maxKeys || sourceShare*its.bytes >= s.maxBytes
}

// findOrAddLocked returns the number of the cell that counts id, making one if there is
// room. Where there is none, all new keys of a limit share one overflow cell, and so
// do those of a source that has used its share: a key that is being limited is never
// pushed out. It stays out of sweeps at now.
func (s *shard) findOrAddLocked(id cellID, h uint64, source uint32, now int64) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		s.cells.at(i).pinLocked(now)
		return i
	}
	s.sweepLocked(now, sweepStep)
	over, without := s.overflowIDLocked(id, source)
	if without {
		s.sweepLocked(now, fullSweep)
		over, without = s.overflowIDLocked(id, source)
	}
	if without {
		id, h = over, s.hash(over)
		if i := s.findLocked(id, h); i != noCell {
			s.cells.at(i).pinLocked(now)
			return i
		}
	}
	return s.addLocked(id, h, source, now)
}

// pinLocked keeps c out of sweeps at now: the next claim of the same decision
// may need room.
func (c *cell) pinLocked(now int64) { c.expiresAt = max(c.expiresAt, now+1) }

func (s *shard) hasRoomLocked() bool {
	return s.keysLocked() < s.maxKeys && s.bytes+cellBytes <= s.maxBytes
}

// addLocked makes the cell that counts id. There is none yet.
func (s *shard) addLocked(id cellID, h uint64, source uint32, now int64) uint32 {
	i := s.cells.add()
	*s.cells.at(i) = cell{id: id, source: source, expiresAt: now + 1, floor: now - 1}
	s.index.add(h, i, s.hashOf)
	s.accountLocked(source, 1, cellBytes)
	return i
}

// accountLocked notes that so many keys and bytes more, or less, are used, and by
// whom.
func (s *shard) accountLocked(source uint32, keys int, bytes int64) {
	s.bytes += bytes
	if source == 0 {
		return
	}
	its := s.sources[source]
	its.keys += keys
	its.bytes += bytes
	if its.keys == 0 {
		delete(s.sources, source)
		return
	}
	s.sources[source] = its
}

// sweepLocked looks at the next n cells and forgets those of which everything
// has come back: a new one would count the same.
func (s *shard) sweepLocked(now int64, n uint32) {
	for range min(n, s.cells.used) {
		if s.nextSweep >= s.cells.used {
			s.nextSweep = 0
		}
		if c := s.cells.at(s.nextSweep); c.expiresAt != 0 && c.expiresAt <= now {
			s.removeLocked(s.nextSweep, c)
		}
		s.nextSweep++
	}
	if s.mirrored.index.used > 0 {
		s.bytes -= mirrorEntryBytes * s.mirrored.sweep(now, n)
	}
}

// removeLocked forgets cell i, which is c.
func (s *shard) removeLocked(i uint32, c *cell) {
	if c.block > 0 {
		s.removeBlockLocked(c)
	}
	h := s.hash(c.id)
	p := s.index.first(h)
	for p.item != i+1 {
		p = s.index.next(h, p)
	}
	s.index.remove(p, s.hashOf)
	s.accountLocked(c.source, -1, -cellBytes)
	s.cells.remove(i)
}

// A stamp is what tells permits apart: when they were taken, and by whom.
type stamp struct {
	at int64
	id [16]byte
}

// takeLocked takes what claim asks for in t, which c keeps. When the shard's bytes are
// used up, or the share of who brought the key, it joins the newest entry instead of
// making a new one: later, never earlier.
func (s *shard) takeLocked(c *cell, t *keyState, p stamp, claim Claim) {
	n := len(t.entries)
	if n == 0 && c.block == 0 && claim.Limit.Algorithm.hasLog() {
		t.entries = c.inline[:0]
	}
	if n < cap(t.entries) || !addsEntry(claim.Limit.Algorithm, n) {
		t.take(p.at, claim, p.id)
		return
	}
	more, moved := int64(max(1, n/2)), int64(0)
	if c.block == 0 {
		moved = blockBytes + entryBytes*int64(n)
	}
	switch claim.Limit.Algorithm {
	case TokenBucket, SlidingLog:
		more = min(more, fullWindow-int64(n))
	case Cooldown:
		more = min(more, maxCooldownEntries-int64(n))
	}
	if n > 0 && (n >= maxEntries || s.bytes+moved+entryBytes*more > s.maxBytes || s.exceedsShareLocked(c.source)) {
		if claim.Limit.Algorithm == Distinct {
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

// addsEntry reports whether one more permit is one more entry, where there are n.
func addsEntry(a Algorithm, n int) bool {
	switch a {
	case TokenBucket, SlidingLog:
		return n < fullWindow
	case Cooldown:
		return n < maxCooldownEntries
	}
	return a == Concurrent || a == Distinct
}

// changeLocked lets change work on what cell i keeps.
func (s *shard) changeLocked(i uint32, l *Limit, change func(t *keyState)) {
	var t keyState
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	change(&t)
	s.saveLocked(c, &t, l)
}
