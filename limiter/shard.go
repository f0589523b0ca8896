package limiter

import (
	"math"
	"sync"
)

const (
	// cellBytes is the memory of a key without its entries, but with the first entry of a
	// log: its cell and its slot in the index, as measured.
	cellBytes  = 104
	entryBytes = 32
	blockBytes = 24 // a longer log, beside its entries
	// sweepStep is the number of cells that are checked for eviction for each new key, and
	// fullSweep if there is no capacity. With 4, at most a quarter of the cells is expired
	// if each request has a new key; with 2 it was half of them.
	sweepStep = 4
	fullSweep = 32
	// Once 1/highWater of the capacity is in use, a source gets no more than 1/sourceShare
	// of it for keys of its own.
	highWater   = 2
	sourceShare = 8
)

// A shard is the part of a Memory that is guarded by one lock.
type shard struct {
	maxKeys  int
	maxBytes int64
	seed     *seed

	mu     sync.Mutex // guards what follows
	index  index      // of cells
	cells  slab[cell]
	blocks slab[[]entry]
	oldest uint32 // the cell where the sweep continues
	bytes  int64
	notes  notes
	// sources is the usage of the keys that each source sent first.
	sources map[uint32]usage
}

// A usage is a number of keys and bytes.
type usage struct {
	keys  int
	bytes int64
}

// noCell is an invalid cell number.
const noCell = math.MaxUint32

// findLocked returns the number of the cell for id, whose hash is h, or noCell.
func (s *shard) findLocked(id cellID, h uint64) uint32 {
	for p := s.index.first(h); p.item > 0; p = s.index.next(h, p) {
		if s.cells.at(p.item-1).id == id {
			return p.item - 1
		}
	}
	return noCell
}

// hash returns the hash of id.
func (s *shard) hash(id cellID) uint64 { return hashUnder(id.limit, s.seed.hash(&id.key)) }

// hashOf returns the hash of cell i.
func (s *shard) hashOf(i uint32) uint64 { return s.hash(s.cells.at(i).id) }

// sharedLocked returns the number of the cell that counts id: its own, or the overflow cell
// if it has none and would not get one.
func (s *shard) sharedLocked(id cellID, h uint64, source uint32) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		return i
	}
	if over, without := s.withoutRoomLocked(id, source); without {
		return s.findLocked(over, s.hash(over))
	}
	return noCell
}

// withoutRoomLocked returns the overflow id for a new key that gets no cell of its own.
func (s *shard) withoutRoomLocked(id cellID, source uint32) (cellID, bool) {
	switch {
	case !s.roomLocked():
		return id.overflow(0), true
	case s.exceedsLocked(source):
		return id.overflow(source), true
	}
	return id, false
}

// keysLocked returns the number of keys, including notes.
func (s *shard) keysLocked() int { return s.index.used + s.notes.index.used }

// exceedsLocked reports whether source has used its share, once capacity is scarce.
func (s *shard) exceedsLocked(source uint32) bool {
	if source == 0 || highWater*s.keysLocked() < s.maxKeys && highWater*s.bytes < s.maxBytes {
		return false
	}
	its := s.sources[source]
	return sourceShare*its.keys >= s.maxKeys || sourceShare*its.bytes >= s.maxBytes
}

// openLocked returns the number of the cell that counts id, and creates it if there is
// capacity. Otherwise all new keys of a limit share one overflow cell, and so do those of a
// source that has used its share: keys in use are never evicted. The cell is exempt from
// sweeps at now.
func (s *shard) openLocked(id cellID, h uint64, source uint32, now int64) uint32 {
	if i := s.findLocked(id, h); i != noCell {
		s.cells.at(i).holdLocked(now)
		return i
	}
	s.sweepLocked(now, sweepStep)
	over, without := s.withoutRoomLocked(id, source)
	if without {
		s.sweepLocked(now, fullSweep)
		over, without = s.withoutRoomLocked(id, source)
	}
	if without {
		id, h = over, s.hash(over)
		if i := s.findLocked(id, h); i != noCell {
			s.cells.at(i).holdLocked(now)
			return i
		}
	}
	return s.addLocked(id, h, source, now)
}

// holdLocked exempts c from sweeps at now: the next claim of the same decision may need
// capacity.
func (c *cell) holdLocked(now int64) { c.until = max(c.until, now+1) }

func (s *shard) roomLocked() bool {
	return s.keysLocked() < s.maxKeys && s.bytes+cellBytes <= s.maxBytes
}

// addLocked creates the cell for id, which must not exist.
func (s *shard) addLocked(id cellID, h uint64, source uint32, now int64) uint32 {
	i := s.cells.add()
	*s.cells.at(i) = cell{id: id, source: source, until: now + 1, floor: now - 1}
	s.index.add(h, i, s.hashOf)
	s.accountLocked(source, 1, cellBytes)
	return i
}

// accountLocked adds to the usage, and to that of source; the numbers may be negative.
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

// sweepLocked checks the next n cells, and evicts those whose permits have all returned: a
// new cell would count the same.
func (s *shard) sweepLocked(now int64, n uint32) {
	for range min(n, s.cells.used) {
		if s.oldest >= s.cells.used {
			s.oldest = 0
		}
		if c := s.cells.at(s.oldest); c.until != 0 && c.until <= now {
			s.forgetLocked(s.oldest, c)
		}
		s.oldest++
	}
	if s.notes.index.used > 0 {
		s.bytes -= noteBytes * s.notes.sweep(now, n)
	}
}

// forgetLocked frees cell i, which is c.
func (s *shard) forgetLocked(i uint32, c *cell) {
	if c.block > 0 {
		s.releaseLocked(c)
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

// A stamp identifies permits: the time at which they were taken, and the id.
type stamp struct {
	at int64
	id [16]byte
}

// takeLocked takes the permits of claim in t, the state of c. If the bytes of the shard or
// the share of the source are used up, it merges them into the newest entry: they return
// later, never earlier.
func (s *shard) takeLocked(c *cell, t *tally, p stamp, claim Claim) {
	n := len(t.entries)
	if n == 0 && c.block == 0 && claim.Limit.Algorithm.keepsLog() {
		t.entries = c.inline[:0]
	}
	if n < cap(t.entries) || !logs(claim.Limit.Algorithm, n) {
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
		more = min(more, maxPauses-int64(n))
	}
	if n > 0 && (n >= maxEntries || s.bytes+moved+entryBytes*more > s.maxBytes || s.exceedsLocked(c.source)) {
		if claim.Limit.Algorithm == Distinct {
			t.supersede(claim.Value.short())
		}
		t.compact(p.at, claim.Cost)
		return
	}
	entries := make([]entry, n, int64(n)+more)
	copy(entries, t.entries)
	t.entries = entries
	t.take(p.at, claim, p.id)
}

// logs reports whether one more permit is one more entry, if there are n.
func logs(a Algorithm, n int) bool {
	switch a {
	case TokenBucket, SlidingLog:
		return n < fullWindow
	case Cooldown:
		return n < maxPauses
	}
	return a == Concurrent || a == Distinct
}

// changeLocked calls change with the state of cell i.
func (s *shard) changeLocked(i uint32, l *Limit, change func(t *tally)) {
	var t tally
	c := s.cells.at(i)
	s.loadLocked(c, &t)
	change(&t)
	s.saveLocked(c, &t, l)
}
