package limiter

import (
	"cmp"
	"slices"
)

const (
	// When a log has fullLog entries, those within the same 1/mergeSlots of a window are
	// merged, so that the size of a key is bounded for any rate.
	fullLog    = 128
	mergeSlots = 64
	// maxMarks is the number of marks of refunds that a merge keeps.
	maxMarks = 32
)

// A permitLog is the log of the permits that one key has taken of one limit: the
// algorithms TokenBucket and SlidingLog, and the state of the others that need single
// permits. Each permit expires exactly one window after it was taken. Times and lengths
// are milliseconds; time is always an argument and may stand still or go back.
//
// A merged entry has the latest time of its parts. So a permit may expire up to
// length/mergeSlots late but never early, and no period of one length holds more permits
// than the rate's count.
//
// The zero permitLog is that of an unused key.
type permitLog struct {
	entries []entry // oldest first
	taken   int64   // sum of the permits of all entries
	// floor is the time up to which merged permits are not refunded, because it is no
	// longer known whether they were refunded already.
	floor int64
}

type entry struct {
	at   int64
	n    uint32
	kind entryKind
	id   [16]byte
}

type entryKind uint8

const (
	single    entryKind = iota // permits of one decision, with its id
	merged                     // permits of several decisions, at their latest time
	mark                       // no permits: id was refunded
	confirmed                  // no permits: the subjects of a Conversion limit that were confirmed in a bucket
	unknown                    // values of a Distinct limit that were used elsewhere
)

// advance removes the entries that have expired at now. Entries with a later time were
// written before the clock was set back; their time becomes now.
func (l *permitLog) advance(now, length int64) {
	for i := len(l.entries) - 1; i >= 0 && l.entries[i].at > now; i-- {
		l.entries[i].at = now
	}
	expired := 0
	for expired < len(l.entries) && l.entries[expired].at <= now-length {
		l.taken -= int64(l.entries[expired].n)
		expired++
	}
	if expired > 0 {
		l.entries = l.entries[:copy(l.entries, l.entries[expired:])]
	}
}

// remaining returns the number of available permits of count; it is negative if the rate
// was lowered below what is taken. advance must have been called.
func (l *permitLog) remaining(count int64) int64 { return count - l.taken }

// wait returns the exact time from now until cost permits of count are available, at most
// length; 0 means now.
func (l *permitLog) wait(now, length, count, cost int64) int64 {
	missing := cost - l.remaining(count)
	if missing <= 0 {
		return 0
	}
	for _, e := range l.entries {
		if missing -= int64(e.n); missing <= 0 {
			return e.at + length - now
		}
	}
	return length
}

// take records the permits of c at now, under id. It merges entries before if there are
// too many.
func (l *permitLog) take(now int64, c *Claim, id [16]byte) {
	if len(l.entries) >= fullLog {
		l.merge(windowMillis(c.Limit))
	}
	l.add(now, id, c.Cost)
}

// refund returns the permits that p took for c, and reports how many those were: 0 if
// they have expired or were refunded before. Above a count of fullLog, where entries
// may be merged, a mark records each refund. advance must have been called.
func (l *permitLog) refund(now int64, p Permit, c *Claim) int64 {
	at, length, count := p.At.UnixMilli(), c.Limit.Rate.Window.Milliseconds(), c.Limit.Rate.Count
	for i := len(l.entries) - 1; i >= 0; i-- {
		e := &l.entries[i]
		if e.id != p.ID || e.kind == merged {
			continue
		}
		n := min(c.Cost, int64(e.n))
		if l.taken -= n; n < int64(e.n) {
			l.refundPart(i, n, c.Limit)
			return n
		}
		if count > fullLog {
			e.n, e.kind = 0, mark
		} else {
			l.floor = max(l.floor, e.at)
			l.entries = slices.Delete(l.entries, i, i+1)
		}
		return n
	}
	if at <= now-length {
		return 0
	}
	return l.refundMerged(at, length, p.ID, c.Cost)
}

// refundPart removes n permits from entry i. What is left of it is not returned by its ID any more.
func (l *permitLog) refundPart(i int, n int64, of *Limit) {
	e := &l.entries[i]
	e.n, e.kind = e.n-uint32(n), merged
	if of.Rate.Count <= fullLog {
		l.floor = max(l.floor, e.at)
		return
	}
	l.insert(entry{at: e.at, kind: mark, id: e.id})
	if len(l.entries) >= fullLog {
		l.merge(windowMillis(of))
	}
}

// grant removes n permits from the newest entries.
func (l *permitLog) grant(n int64) {
	for i := len(l.entries) - 1; i >= 0 && n > 0; i-- {
		e := &l.entries[i]
		part := min(n, int64(e.n))
		e.n -= uint32(part)
		l.taken -= part
		n -= part
		if e.kind == single && part > 0 {
			e.kind = merged // so that a refund returns only the remaining permits
		}
	}
}

// refundMerged returns cost permits from the entry that the permits taken at the time at
// were merged into: the first merged entry that is not older.
func (l *permitLog) refundMerged(at, length int64, id [16]byte, cost int64) int64 {
	if at <= l.floor {
		return 0
	}
	for i := range l.entries {
		e := &l.entries[i]
		if e.kind != merged || e.at < at {
			continue
		}
		n := min(cost, int64(e.n))
		e.n -= uint32(n)
		l.taken -= n
		l.insert(entry{at: at, kind: mark, id: id})
		if len(l.entries) >= fullLog {
			l.merge(length)
		}
		return n
	}
	return 0
}

// newestTime returns the time of the newest entry; 0 if there is none.
func (l *permitLog) newestTime() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	return l.entries[len(l.entries)-1].at
}

// add records cost permits at now, under id.
func (l *permitLog) add(now int64, id [16]byte, cost int64) {
	l.entries = append(l.entries, entry{at: now, n: uint32(cost), id: id})
	l.taken += cost
}

// addToNewest records cost permits at now without a new entry: it merges them into the
// newest entry, whose time becomes now. There must be an entry.
func (l *permitLog) addToNewest(now, cost int64) {
	last := &l.entries[len(l.entries)-1]
	if last.kind == mark {
		l.floor = max(l.floor, last.at)
	}
	last.at, last.n = now, last.n+uint32(cost)
	if last.kind != unknown {
		last.kind = merged
	}
	l.taken += cost
}

// release removes what was taken under id and reports how many permits that were.
func (l *permitLog) release(id [16]byte) int64 {
	i := slices.IndexFunc(l.entries, func(e entry) bool { return e.kind == single && e.id == id })
	if i < 0 {
		return 0
	}
	n := int64(l.entries[i].n)
	l.taken -= n
	l.entries = slices.Delete(l.entries, i, i+1)
	return n
}

// holds reports whether the permits of p count at now, a horizon after which they expire:
// whether it is certain that they were not refunded. Counters have no entries of permits,
// only marks of what was refunded.
func (l *permitLog) holds(now, horizon int64, p Permit) bool {
	at := p.At.UnixMilli()
	return at > now-horizon && at > l.floor &&
		!slices.ContainsFunc(l.entries, func(e entry) bool { return e.kind == mark && e.id == p.ID })
}

// markRefund records that n permits of p were refunded to a counter, and returns n. If
// there are too many marks, it replaces the oldest.
func (l *permitLog) markRefund(p Permit, n int64) int64 {
	if n == 0 {
		return 0
	}
	if len(l.entries) >= mergeSlots {
		l.floor = max(l.floor, l.entries[0].at)
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	l.insert(entry{at: p.At.UnixMilli(), kind: mark, id: p.ID})
	return n
}

// insert inserts e in the order of time.
func (l *permitLog) insert(e entry) {
	i := len(l.entries)
	for i > 0 && l.entries[i-1].at > e.at {
		i--
	}
	l.entries = slices.Insert(l.entries, i, e)
}

// merge replaces the entries in each slot of time by one with the latest time of them,
// and removes all but the latest marks. Slots are counted from time 0, so that merging
// again does not change merged entries.
func (l *permitLog) merge(length int64) {
	width := (length + mergeSlots - 1) / mergeSlots
	marks := 0
	for _, e := range l.entries {
		if e.kind == mark {
			marks++
		}
	}
	kept, last := l.entries[:0], -1 // index of the last kept entry with permits
	for _, e := range l.entries {
		switch {
		case e.kind == mark && marks > maxMarks:
			l.floor = max(l.floor, e.at)
			marks--
		case e.kind == mark:
			kept = append(kept, e)
		case e.n == 0:
		case last >= 0 && kept[last].at/width == e.at/width:
			kept[last].at, kept[last].n, kept[last].kind = e.at, kept[last].n+e.n, merged
		default:
			last = len(kept)
			kept = append(kept, e)
		}
	}
	l.entries = kept
	if marks == 0 {
		return
	}
	// An entry that got a later time may stand before an older mark now.
	slices.SortStableFunc(l.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
}
