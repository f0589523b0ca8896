package limiter

import (
	"fmt"
	"slices"
	"time"
)

// A Conversion limit with Limit.Memory also counts the confirmed subjects of each day (UTC, by the store's
// clock): a subject that is confirmed again and again once a window, and once on each day. The subjects of a window are at least half of
// those of the best of the last days, today included, scaled down to the window: a quiet morning does not begin
// with nothing, and a day without confirmations does not live on a record. So what is remembered is at most half
// of what V was on average on that day. For windows longer than a day it is half of the day's, not more.
//
// Of the days only those are kept that have more subjects than all later ones: no other is ever the best.
// A day counts until it begins to leave the memory. All divisions round down.

const (
	dayMillis = int64(day / time.Millisecond)
	// minMemoryDays is the shortest memory, today and yesterday, and maxMemoryDays bounds the state of a key.
	minMemoryDays, maxMemoryDays = 2, 31
	// maxDaySubjects is the largest number of subjects of a day: with it Lua, whose integers have 53 bits,
	// comes to the same.
	maxDaySubjects = 1<<26 - 1
)

// checkMemory checks Limit.Memory.
func (l *Limit) checkMemory() error {
	switch {
	case l.Memory == 0:
		return nil
	case l.Memory%day != 0 || l.Memory < minMemoryDays*day || l.Memory > maxMemoryDays*day:
		return fmt.Errorf("%w: %s has a memory of %v; it is %d to %d whole days", ErrInvalidLimit, l.Name, l.Memory, minMemoryDays, maxMemoryDays)
	case l.Memory <= l.Rate.Window:
		return fmt.Errorf("%w: %s has a memory that is not longer than its window", ErrInvalidLimit, l.Name)
	}
	return nil
}

func memoryMillis(l *Limit) int64 { return l.Memory.Milliseconds() }

// remembered returns the number of subjects for which the best day counts at now.
func (s *keyState) remembered(now int64, l *Limit) int64 {
	best := int64(0)
	for i := range s.entries {
		if e := &s.entries[i]; e.kind == dayTotal && e.at+memoryMillis(l) > now {
			best = max(best, int64(e.n))
		}
	}
	return best * min(windowMillis(l), dayMillis) / (2 * dayMillis)
}

// countDay counts a subject for the day of now, and forgets the days that it makes needless.
func (s *keyState) countDay(now int64) {
	today := now - now%dayMillis
	s.addToBucket(today, dayTotal, 1)
	e := s.bucket(today, dayTotal)
	e.n = min(e.n, maxDaySubjects)
	n := e.n
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.kind == dayTotal && e.at < today && e.n <= n })
}

// daysEndAt returns the time from which no day counts; 0 if none does.
func (s *keyState) daysEndAt(l *Limit) (end int64) {
	for i := range s.entries {
		if e := &s.entries[i]; e.kind == dayTotal {
			end = max(end, e.at+memoryMillis(l))
		}
	}
	return end
}
