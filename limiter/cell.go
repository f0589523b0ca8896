package limiter

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// A cellID identifies a count: the number of a limit in the Memory, and a key.
type cellID struct {
	limit uint32
	key   Key
}

// overflow returns the id for counts of keys that get no cell of their own: of one source
// that has used its share, or, for source 0, of all others.
func (id cellID) overflow(source uint32) cellID {
	id = cellID{limit: id.limit | 1<<31}
	binary.LittleEndian.PutUint32(id.key[:], source)
	return id
}

// A seed makes hashes unpredictable, so that clients cannot choose keys that collide.
type seed [2]uint64

func (s *seed) hash(k *Key) uint64 {
	high, low := bits.Mul64(binary.LittleEndian.Uint64(k[:8])^s[0], binary.LittleEndian.Uint64(k[8:])^s[1])
	return high ^ low
}

// hashUnder combines a limit with the hash of a key.
func hashUnder(limit uint32, key uint64) uint64 { return key ^ uint64(limit+1)*0x9e3779b97f4a7c15 }

// A cell stores a tally in 96 bytes without pointers. It contains a log of one entry, or
// the counters of an algorithm without a log; longer logs are in the blocks of the shard.
type cell struct {
	until  int64 // when all permits have returned; 0 if the cell is free
	banned int64
	floor  int64
	taken  int64
	id     cellID
	source uint32 // the source of the key; 0 for none
	block  uint32 // the number of the block plus one; 0 for none
	count  uint16 // entries

	algorithm Algorithm
	inline    [1]entry
}

// maxEntries is the maximum number of entries of a cell.
const maxEntries = math.MaxUint16

// keepsLog reports whether a keeps permits as entries, not in counters.
func (a Algorithm) keepsLog() bool {
	switch a {
	case FixedWindow, SlidingWindow, GCRA:
		return false
	}
	return true
}

// loadLocked sets t to the state in c. The entries are not copied.
func (s *shard) loadLocked(c *cell, t *tally) {
	t.algorithm, t.banned, t.floor, t.taken = c.algorithm, c.banned, c.floor, c.taken
	t.entries, t.counter = nil, counter{}
	switch {
	case c.block > 0:
		t.entries = (*s.blocks.at(c.block - 1))[:c.count]
	case c.algorithm.keepsLog():
		t.entries = c.inline[:c.count]
	}
	if !c.algorithm.keepsLog() {
		e := &c.inline[0]
		t.start = e.at
		t.before = int64(binary.LittleEndian.Uint64(e.id[:8]))
		t.debt = math.Float64frombits(binary.LittleEndian.Uint64(e.id[8:]))
	}
}

// saveLocked stores t in c and accounts for its bytes. Entries that were moved stay in the
// memory of t.
func (s *shard) saveLocked(c *cell, t *tally, l *Limit) {
	c.algorithm, c.banned, c.floor, c.taken = t.algorithm, t.banned, t.floor, t.taken
	c.until = max(c.until, t.until(l))
	s.keepLocked(c, t.entries)
	if !t.algorithm.keepsLog() {
		e := &c.inline[0]
		e.at = t.start
		binary.LittleEndian.PutUint64(e.id[:8], uint64(t.before))
		binary.LittleEndian.PutUint64(e.id[8:], math.Float64bits(t.debt))
	}
}

// keepLocked stores entries for c: in the cell, or in a block.
func (s *shard) keepLocked(c *cell, entries []entry) {
	c.count = uint16(len(entries))
	switch {
	case cap(entries) > 1 || c.block > 0 && cap(entries) > 0 || len(entries) > 0 && !c.algorithm.keepsLog():
		if c.block == 0 {
			c.block = s.blocks.add() + 1
			s.accountLocked(c.source, 0, blockBytes)
		}
		b := s.blocks.at(c.block - 1)
		if before := cap(*b); before != cap(entries) {
			s.accountLocked(c.source, 0, entryBytes*int64(cap(entries)-before))
		}
		*b = entries
	case c.block > 0:
		s.releaseLocked(c)
	case len(entries) == 1:
		c.inline[0] = entries[0]
	}
}

// releaseLocked frees the block of c.
func (s *shard) releaseLocked(c *cell) {
	s.accountLocked(c.source, 0, -blockBytes-entryBytes*int64(cap(*s.blocks.at(c.block - 1))))
	s.blocks.remove(c.block - 1)
	c.block = 0
}
