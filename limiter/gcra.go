package limiter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// GCRA is a leaky bucket used as a meter. The state of such a limit is debt, the permits that are not available again at the time
// start, and before, the last time at which it was 0. A debt from a higher limit counts as the
// capacity, so that no wait is longer than the horizon.

// checkBurst checks the burst.
func (l *Limit) checkBurst() error {
	switch {
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("%w: %s has a burst of %d; it is 1 to %d", ErrInvalidLimit, l.Name, l.Burst, int64(MaxCount))
	case float64(l.Capacity())/float64(l.Rate.Count) > float64(MaxWindow/l.Rate.Window):
		return fmt.Errorf("%w: %s needs more than 366d to refill a burst of %d", ErrInvalidLimit, l.Name, l.Burst)
	}
	return nil
}

// horizonBurst returns the time in which all permits become available.
func (l *Limit) horizonBurst() time.Duration {
	ms := math.Ceil(float64(l.Capacity()) * float64(l.Rate.Window.Milliseconds()) / float64(l.Rate.Count))
	return time.Duration(ms) * time.Millisecond
}

// advanceGCRA removes expired marks.
func (s *keyState) advanceGCRA(now int64, l *Limit) {
	s.permitLog.advance(now, l.horizonBurst().Milliseconds())
	s.start = min(s.start, now)
}

// remainingGCRA returns the permits that the debt leaves.
func (s *keyState) remainingGCRA(now int64, l *Limit) int64 {
	return int64(math.Floor(float64(l.Capacity()) - s.debtAt(now, l) + epsilon))
}

// waitGCRA returns the time until cost permits are available.
func (s *keyState) waitGCRA(now int64, l *Limit, cost int64) int64 {
	over := s.debtAt(now, l) + float64(cost) - float64(l.Capacity()) - epsilon
	return s.waitNear(now+int64(math.Ceil(over*float64(windowMillis(l))/float64(l.Rate.Count))), now, l, cost)
}

// takeGCRA adds cost permits to the debt.
func (s *keyState) takeGCRA(now int64, l *Limit, cost int64) {
	owed := s.debtAt(now, l)
	if owed == 0 {
		s.before = now
	}
	s.debt, s.start = owed+float64(cost), now
}

// refundGCRA returns the permits of p, if the debt has not been zero since they were
// taken: permits that were taken last become available last.
func (s *keyState) refundGCRA(now int64, p Permit, c *Claim) int64 {
	owed := s.debtAt(now, c.Limit)
	if owed == 0 || p.At.UnixMilli() < s.before || !s.holds(now, c.Limit.horizonBurst().Milliseconds(), p) {
		return 0
	}
	s.debt, s.start = max(0, owed-float64(c.Cost)), now
	return s.markRefund(p, c.Cost)
}

// epsilon is the tolerance for rounding errors of sums of fractions, in permits.
const epsilon = 1e-6

// debtAt returns the number of permits that are not available again at now.
func (s *keyState) debtAt(now int64, l *Limit) float64 {
	owed := min(s.debt, float64(l.Capacity()))
	return max(0, owed-float64(now-s.start)*float64(l.Rate.Count)/float64(windowMillis(l)))
}

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
