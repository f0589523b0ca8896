package limiter

import (
	"encoding/binary"
	"sync"
)

const (
	// cellBytes is what one key costs beside its entries: its cell and its
	// place in the index, as measured.
	cellBytes  = 192
	entryBytes = 32
	// sweepStep cells are looked at for each new key, sweepFull when there is
	// no room for it.
	sweepStep = 2
	sweepFull = 32
	// When 1/pressed of the room is in use, a source gets no more than 1/sourceShare
	// of it for keys of their own.
	pressed     = 2
	sourceShare = 8
)

// A shard is the part of a Memory that one lock guards. Its cells lie in one
// slice that never moves a cell to another index.
type shard struct {
	maxCells int
	maxBytes int64

	mu     sync.Mutex // guards what follows
	index  map[cellID]int32
	cells  []cell
	free   []int32
	oldest int // where the sweep goes on
	bytes  int64
	// sources are how much of that belongs to keys that each source brought first.
	sources map[uint32]usage
}

// A usage is how much room something takes.
type usage struct {
	cells int
	bytes int64
}

// A cellID names what is counted together: a limit, by its number in the
// Memory, and a key.
type cellID struct {
	limit uint32
	key   Key
}

// overflow names what the keys without room are counted under: those of one source
// that has used its share, or, for source 0, of all.
func (id cellID) overflow(source uint32) cellID {
	id = cellID{limit: id.limit | 1<<31}
	binary.LittleEndian.PutUint32(id.key[:], source)
	return id
}

type cell struct {
	id     cellID
	source uint32 // who brought it; 0 for nobody
	until  int64  // when everything has come back; 0 when the cell is free
	tally
}

// findLocked returns the cell that counts id, or nil if there is none yet.
func (s *shard) findLocked(id cellID) *cell {
	if i, ok := s.index[id]; ok {
		return &s.cells[i]
	}
	return nil
}

// sharedLocked returns the cell that counts id: its own, or the overflow cell
// where it has none and would get none.
func (s *shard) sharedLocked(id cellID, source uint32) *cell {
	c := s.findLocked(id)
	if c != nil {
		return c
	}
	if over, ok := s.withoutRoomLocked(id, source); ok {
		return s.findLocked(over)
	}
	return nil
}

// withoutRoomLocked names what a new key is counted under that gets no cell of its own.
func (s *shard) withoutRoomLocked(id cellID, source uint32) (cellID, bool) {
	switch {
	case !s.roomLocked():
		return id.overflow(0), true
	case s.exceedsLocked(source):
		return id.overflow(source), true
	}
	return id, false
}

// exceedsLocked reports whether source has had its share of the room, where room has
// become scarce.
func (s *shard) exceedsLocked(source uint32) bool {
	if source == 0 || pressed*len(s.index) < s.maxCells && pressed*s.bytes < s.maxBytes {
		return false
	}
	its := s.sources[source]
	return sourceShare*its.cells >= s.maxCells || sourceShare*its.bytes >= s.maxBytes
}

// openLocked returns the index of the cell that counts id, making one if there is
// room. Where there is none, all new keys of a limit share one overflow cell, and so
// do those of a source that has used its share: a key that is being limited is never
// pushed out. It stays out of sweeps at now.
func (s *shard) openLocked(id cellID, source uint32, now int64) int32 {
	if i, ok := s.index[id]; ok {
		s.cells[i].holdLocked(now)
		return i
	}
	s.sweepLocked(now, sweepStep)
	over, without := s.withoutRoomLocked(id, source)
	if without {
		s.sweepLocked(now, sweepFull)
		over, without = s.withoutRoomLocked(id, source)
	}
	if without {
		id = over
		if i, ok := s.index[id]; ok {
			s.cells[i].holdLocked(now)
			return i
		}
	}
	return s.addLocked(id, source, now)
}

// holdLocked keeps c out of sweeps at now: the next claim of the same decision
// may need room.
func (c *cell) holdLocked(now int64) { c.until = max(c.until, now+1) }

func (s *shard) roomLocked() bool {
	return len(s.index) < s.maxCells && s.bytes+cellBytes+entryBytes <= s.maxBytes
}

func (s *shard) addLocked(id cellID, source uint32, now int64) int32 {
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.cells))
		s.cells = append(s.cells, cell{})
	}
	s.cells[i] = cell{id: id, source: source, until: now + 1, tally: tally{window: window{floor: now - 1}}}
	s.index[id] = i
	s.accountLocked(source, 1, cellBytes)
	return i
}

// accountLocked notes that so many cells and bytes more, or less, are used, and by
// whom.
func (s *shard) accountLocked(source uint32, cells int, bytes int64) {
	s.bytes += bytes
	if source == 0 {
		return
	}
	its := s.sources[source]
	its.cells += cells
	its.bytes += bytes
	if its.cells == 0 {
		delete(s.sources, source)
		return
	}
	s.sources[source] = its
}

// sweepLocked looks at the next n cells and forgets those of which everything
// has come back: a new one would count the same.
func (s *shard) sweepLocked(now int64, n int) {
	for range min(n, len(s.cells)) {
		if s.oldest >= len(s.cells) {
			s.oldest = 0
		}
		c := &s.cells[s.oldest]
		if c.until != 0 && c.until <= now {
			delete(s.index, c.id)
			s.accountLocked(c.source, -1, -cellBytes-entryBytes*int64(cap(c.entries)))
			*c = cell{}
			s.free = append(s.free, int32(s.oldest))
		}
		s.oldest++
	}
}

// takeLocked takes what claim asks for in c. When the shard's bytes are used up, or
// the share of who brought the key, it joins the newest entry instead of making a new one: later, never earlier.
func (s *shard) takeLocked(c *cell, now int64, claim Claim, id [16]byte) {
	n := len(c.entries)
	if n < cap(c.entries) || !logs(claim.Limit.Algorithm, n) {
		c.take(now, claim, id)
		return
	}
	more := int64(max(1, n))
	switch claim.Limit.Algorithm {
	case TokenBucket, SlidingLog:
		more = min(more, fullWindow-int64(n))
	case Cooldown:
		more = min(more, maxPauses-int64(n))
	}
	if n > 0 && (s.bytes+entryBytes*more > s.maxBytes || s.exceedsLocked(c.source)) {
		if claim.Limit.Algorithm == Distinct {
			c.supersede(claim.Value.short())
		}
		c.fold(now, claim.Cost)
		return
	}
	entries := make([]entry, n, int64(n)+more)
	copy(entries, c.entries)
	c.entries = entries
	s.accountLocked(c.source, 0, entryBytes*more)
	c.take(now, claim, id)
}

// logs reports whether one more permit is one more entry, where there are n.
func logs(a Algorithm, n int) bool {
	switch a {
	case TokenBucket, SlidingLog:
		return n < fullWindow
	case Cooldown:
		return n < maxPauses
	}
	return a == Concurrent || a == Distinct
}

// changeLocked lets change work on c, and keeps account of the bytes.
func (s *shard) changeLocked(c *cell, l *Limit, change func(t *tally)) {
	before := cap(c.entries)
	change(&c.tally)
	s.accountLocked(c.source, 0, entryBytes*int64(cap(c.entries)-before))
	c.until = max(c.until, c.tally.until(l))
}
