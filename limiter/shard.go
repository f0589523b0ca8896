package limiter

import "sync"

const (
	// cellBytes is what one key costs beside its entries: its cell and its
	// place in the index, as measured.
	cellBytes  = 192
	entryBytes = 32
	// sweepStep cells are looked at for each new key, sweepFull when there is
	// no room for it.
	sweepStep = 2
	sweepFull = 32
)

// A shard is the part of a Memory that one lock guards. Its cells lie in one
// slice that never moves a cell to another index.
type shard struct {
	maxCells int
	maxBytes int64

	mu    sync.Mutex // guards what follows
	index map[cellID]int32
	cells []cell
	free  []int32
	hand  int // where the sweep goes on
	bytes int64
}

// A cellID names what is counted together: a limit, by its number in the
// Memory, and a key.
type cellID struct {
	limit uint32
	key   Key
}

// overflow names what the keys without room are counted under.
func (id cellID) overflow() cellID { return cellID{limit: id.limit | 1<<31} }

type cell struct {
	id    cellID
	used  bool
	until int64 // when everything has come back
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
func (s *shard) sharedLocked(id cellID) *cell {
	if c := s.findLocked(id); c != nil || s.roomLocked() {
		return c
	}
	return s.findLocked(id.overflow())
}

// openLocked returns the index of the cell that counts id, making one if there is
// room. Where there is none, all new keys of a limit share one overflow cell: a key
// that is being limited is never pushed out. It stays out of sweeps at now.
func (s *shard) openLocked(id cellID, now int64) int32 {
	if i, ok := s.index[id]; ok {
		s.cells[i].holdLocked(now)
		return i
	}
	s.sweepLocked(now, sweepStep)
	if !s.roomLocked() {
		s.sweepLocked(now, sweepFull)
	}
	if !s.roomLocked() {
		id = id.overflow()
		if i, ok := s.index[id]; ok {
			s.cells[i].holdLocked(now)
			return i
		}
	}
	return s.addLocked(id, now)
}

// holdLocked keeps c out of sweeps at now: the next claim of the same decision
// may need room.
func (c *cell) holdLocked(now int64) { c.until = max(c.until, now+1) }

func (s *shard) roomLocked() bool {
	return len(s.index) < s.maxCells && s.bytes+cellBytes+entryBytes <= s.maxBytes
}

func (s *shard) addLocked(id cellID, now int64) int32 {
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.cells))
		s.cells = append(s.cells, cell{})
	}
	s.cells[i] = cell{id: id, used: true, until: now + 1, tally: tally{window: window{floor: now - 1}}}
	s.index[id] = i
	s.bytes += cellBytes
	return i
}

// sweepLocked looks at the next n cells and forgets those of which everything
// has come back: a new one would count the same.
func (s *shard) sweepLocked(now int64, n int) {
	for range min(n, len(s.cells)) {
		if s.hand >= len(s.cells) {
			s.hand = 0
		}
		c := &s.cells[s.hand]
		if c.used && c.until <= now {
			delete(s.index, c.id)
			s.bytes -= cellBytes + entryBytes*int64(cap(c.entries))
			*c = cell{}
			s.free = append(s.free, int32(s.hand))
		}
		s.hand++
	}
}

// takeLocked takes what claim asks for in c. When the shard's bytes are used up, it
// joins the newest entry instead of making a new one: later, never earlier.
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
	if n > 0 && s.bytes+entryBytes*more > s.maxBytes {
		if claim.Limit.Algorithm == Distinct {
			c.supersede(claim.Value.short())
		}
		c.fold(now, claim.Cost)
		return
	}
	entries := make([]entry, n, int64(n)+more)
	copy(entries, c.entries)
	c.entries = entries
	s.bytes += entryBytes * more
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
	s.bytes += entryBytes * int64(cap(c.entries)-before)
	c.until = max(c.until, c.tally.until(l))
}
