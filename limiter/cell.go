package limiter

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// A cellID identifies a count: a limit, by its number in the Memory, and a key.
type cellID struct {
	limit uint32
	key   Key
}

// overflowID returns the ID of an overflow cell of the limit. It counts the keys that got
// no cell of their own: those of one source that has used its share or, for source 0, of
// all sources.
func (c cellID) overflowID(source uint32) cellID {
	c = cellID{limit: c.limit | 1<<31}
	binary.LittleEndian.PutUint32(c.key[:], source)
	return c
}

// A seed makes hashes unpredictable for clients, so that they cannot choose keys with
// colliding hashes.
type seed [2]uint64

func (s *seed) hash(k *Key) uint64 {
	high, low := bits.Mul64(binary.LittleEndian.Uint64(k[:8])^s[0], binary.LittleEndian.Uint64(k[8:])^s[1])
	return high ^ low
}

// hashUnder combines the number of a limit with the hash of a key.
func hashUnder(limit uint32, key uint64) uint64 { return key ^ uint64(limit+1)*0x9e3779b97f4a7c15 }

// A cell is the compact, pointer-free form of a keyState: 96 bytes. It holds a log of one
// entry, or the counters of an algorithm without a log, inline. Longer logs are in blocks
// of the shard.
type cell struct {
	expiresAt   int64 // when all permits have expired; 0 if the cell is free
	bannedUntil int64
	floor       int64
	taken       int64
	id          cellID
	source      uint32 // that added the key; 0 if unknown
	block       uint32 // index of the block plus one; 0 for none
	count       uint16 // number of entries

	algorithm Algorithm
	inline    [1]entry
}

// maxEntries is the largest number of entries of a cell.
const maxEntries = math.MaxUint16

// loadLocked sets t to the state that c holds. The entries are shared, not copied.
func (s *shard) loadLocked(c *cell, t *keyState) {
	t.algorithm, t.bannedUntil, t.floor, t.taken = c.algorithm, c.bannedUntil, c.floor, c.taken
	t.entries, t.counter = nil, counter{}
	hasLog := c.algorithm.HasLog()
	switch {
	case c.block > 0:
		t.entries = (*s.blocks.at(c.block - 1))[:c.count]
	case hasLog:
		t.entries = c.inline[:c.count]
	}
	if !hasLog {
		e := &c.inline[0]
		t.start = e.at
		t.before = int64(binary.LittleEndian.Uint64(e.id[:8]))
		t.debt = math.Float64frombits(binary.LittleEndian.Uint64(e.id[8:]))
	}
}

// saveLocked stores t in c and accounts for the bytes. Entries that were moved are not
// copied again.
func (s *shard) saveLocked(c *cell, t *keyState, l *Limit) {
	c.algorithm, c.bannedUntil, c.floor, c.taken = t.algorithm, t.bannedUntil, t.floor, t.taken
	c.expiresAt = max(c.expiresAt, t.expiresAt(l))
	s.saveEntriesLocked(c, t.entries)
	if !t.algorithm.HasLog() {
		e := &c.inline[0]
		e.at = t.start
		binary.LittleEndian.PutUint64(e.id[:8], uint64(t.before))
		binary.LittleEndian.PutUint64(e.id[8:], math.Float64bits(t.debt))
	}
}

// expiresAt returns a time at which the key certainly has no state left.
func (s *keyState) expiresAt(l *Limit) int64 {
	return max(s.bannedUntil, s.lastChange(l)+l.Horizon().Milliseconds())
}

// lastChange returns the time of the last change that s records.
func (s *keyState) lastChange(l *Limit) int64 {
	start := s.start // 0 with a log
	if l.Algorithm.IsNumbered() {
		start *= windowMillis(l)
	}
	return max(s.newestTime(), start)
}

// saveEntriesLocked stores the entries of c, inline or in a block.
func (s *shard) saveEntriesLocked(c *cell, entries []entry) {
	c.count = uint16(len(entries))
	switch {
	case cap(entries) > 1 || c.block > 0 && cap(entries) > 0 || len(entries) > 0 && !c.algorithm.HasLog():
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
		s.removeBlockLocked(c)
	case len(entries) == 1:
		c.inline[0] = entries[0]
	}
}

// removeBlockLocked frees the block of c. c must have one.
func (s *shard) removeBlockLocked(c *cell) {
	s.accountLocked(c.source, 0, -blockBytes-entryBytes*int64(cap(*s.blocks.at(c.block - 1))))
	s.blocks.remove(c.block - 1)
	c.block = 0
}
