package limiter

import (
	"cmp"
	"slices"
)

const (
	// When a window has fullWindow entries, those within the same 1/mergeSlots of its
	// length are merged, so that the size of a key is bounded for any rate.
	fullWindow = 128
	mergeSlots = 64
	// maxMarks is the number of marks of refunds that a merge keeps.
	maxMarks = 32
)

// A window is the log of the permits that one key has taken of one limit. Each permit
// expires exactly one window length after it was taken. Times and lengths are
// milliseconds; time is always an argument and may stand still or go back.
//
// A merged entry has the latest time of its parts. So a permit may expire up to
// length/mergeSlots late but never early, and no period of one length holds more permits
// than the rate's count.
//
// The zero window is that of an unused key.
type window struct {
	entries []entry // oldest first
	taken   int64   // sum of the permits of all entries
	// floor is the time up to which merged permits are not refunded, because it is no
	// longer known whether they were refunded already.
	floor int64
}

type entry struct {
	at   int64
	n    uint32
	kind kind
	id   [16]byte
}

type kind uint8

const (
	single kind = iota // permits of one decision, with its id
	merged             // permits of several decisions, at their latest time
	mark               // no permits: id was refunded
)

// advance removes the entries that have expired at now. Entries with a later time were
// written before the clock was set back; their time becomes now.
func (w *window) advance(now, length int64) {
	for i := len(w.entries) - 1; i >= 0 && w.entries[i].at > now; i-- {
		w.entries[i].at = now
	}
	expired := 0
	for expired < len(w.entries) && w.entries[expired].at <= now-length {
		w.taken -= int64(w.entries[expired].n)
		expired++
	}
	if expired > 0 {
		w.entries = w.entries[:copy(w.entries, w.entries[expired:])]
	}
}

// newestTime returns the time of the newest entry; 0 if there is none.
func (w *window) newestTime() int64 {
	if len(w.entries) == 0 {
		return 0
	}
	return w.entries[len(w.entries)-1].at
}

// remaining returns the number of available permits of count; it is negative if the rate
// was lowered below what is taken. advance must have been called.
func (w *window) remaining(count int64) int64 { return count - w.taken }

// wait returns the exact time from now until cost permits of count are available, at most
// length; 0 means now.
func (w *window) wait(now, length, count, cost int64) int64 {
	missing := cost - w.remaining(count)
	if missing <= 0 {
		return 0
	}
	for _, e := range w.entries {
		if missing -= int64(e.n); missing <= 0 {
			return e.at + length - now
		}
	}
	return length
}

// take records cost permits at now, under id.
func (w *window) take(now int64, id [16]byte, cost int64) {
	w.entries = append(w.entries, entry{at: now, n: uint32(cost), id: id})
	w.taken += cost
}

// addToNewest records cost permits at now without a new entry: it merges them into the
// newest entry, whose time becomes now. There must be an entry.
func (w *window) addToNewest(now, cost int64) {
	last := &w.entries[len(w.entries)-1]
	if last.kind == mark {
		w.floor = max(w.floor, last.at)
	}
	last.at, last.n, last.kind = now, last.n+uint32(cost), merged
	w.taken += cost
}

// refund returns the permits that p took for c, and reports how many those were: 0 if
// they have expired or were refunded before. Above a count of fullWindow, where entries
// may be merged, a mark records each refund. advance must have been called.
func (w *window) refund(now int64, p Permit, c Claim) int64 {
	at, length, count := p.At.UnixMilli(), c.Limit.Rate.Window.Milliseconds(), c.Limit.Rate.Count
	for i := len(w.entries) - 1; i >= 0; i-- {
		e := &w.entries[i]
		if e.id != p.ID || e.kind == merged {
			continue
		}
		n := int64(e.n)
		w.taken -= n
		if count > fullWindow {
			e.n, e.kind = 0, mark
		} else {
			w.floor = max(w.floor, e.at)
			w.entries = slices.Delete(w.entries, i, i+1)
		}
		return n
	}
	if at <= now-length {
		return 0
	}
	return w.refundMerged(at, length, p.ID, c.Cost)
}

// refundMerged returns cost permits from the entry that the permits taken at the time at
// were merged into: the first merged entry that is not older.
func (w *window) refundMerged(at, length int64, id [16]byte, cost int64) int64 {
	if at <= w.floor {
		return 0
	}
	for i := range w.entries {
		e := &w.entries[i]
		if e.kind != merged || e.at < at {
			continue
		}
		n := min(cost, int64(e.n))
		e.n -= uint32(n)
		w.taken -= n
		w.insert(entry{at: at, kind: mark, id: id})
		if len(w.entries) >= fullWindow {
			w.merge(length)
		}
		return n
	}
	return 0
}

// release removes what was taken under id and reports how many permits that were.
func (w *window) release(id [16]byte) int64 {
	i := slices.IndexFunc(w.entries, func(e entry) bool { return e.kind == single && e.id == id })
	if i < 0 {
		return 0
	}
	n := int64(w.entries[i].n)
	w.taken -= n
	w.entries = slices.Delete(w.entries, i, i+1)
	return n
}

// renew changes the time of the permits under id to now, and reports whether they were
// still held.
func (w *window) renew(now int64, id [16]byte) bool {
	n := w.release(id)
	if n == 0 {
		return false
	}
	w.take(now, id, n)
	return true
}

// grant removes n permits from the newest entries.
func (w *window) grant(n int64) {
	for i := len(w.entries) - 1; i >= 0 && n > 0; i-- {
		e := &w.entries[i]
		part := min(n, int64(e.n))
		e.n -= uint32(part)
		w.taken -= part
		n -= part
		if e.kind == single && part > 0 {
			e.kind = merged // so that a refund returns only the remaining permits
		}
	}
}

// isUnmarked reports whether it is certain that the permits under id, taken at the time
// at, were not refunded.
func (w *window) isUnmarked(at int64, id [16]byte) bool {
	return at > w.floor && !slices.ContainsFunc(w.entries, func(e entry) bool { return e.kind == mark && e.id == id })
}

// addMark records that id was refunded. If there are too many marks, it replaces the
// oldest.
func (w *window) addMark(at int64, id [16]byte) {
	if len(w.entries) >= mergeSlots {
		w.floor = max(w.floor, w.entries[0].at)
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.insert(entry{at: at, kind: mark, id: id})
}

// insert inserts e in the order of time.
func (w *window) insert(e entry) {
	i := len(w.entries)
	for i > 0 && w.entries[i-1].at > e.at {
		i--
	}
	w.entries = slices.Insert(w.entries, i, e)
}

// merge replaces the entries in each slot of time by one with the latest time of them,
// and removes all but the latest marks. Slots are counted from time 0, so that merging
// again does not change merged entries.
func (w *window) merge(length int64) {
	width := (length + mergeSlots - 1) / mergeSlots
	marks := 0
	for _, e := range w.entries {
		if e.kind == mark {
			marks++
		}
	}
	kept, last := w.entries[:0], -1 // index of the last kept entry with permits
	for _, e := range w.entries {
		switch {
		case e.kind == mark && marks > maxMarks:
			w.floor = max(w.floor, e.at)
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
	w.entries = kept
	if marks == 0 {
		return
	}
	// An entry that got a later time may stand before an older mark now.
	slices.SortStableFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
}
