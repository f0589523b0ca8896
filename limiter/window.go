package limiter

import (
	"cmp"
	"slices"
)

const (
	// A window with more than fullWindow entries is merged into mergeSlots parts of its
	// length, which bounds the memory of a key.
	fullWindow = 128
	mergeSlots = 64
	// keptMarks is the number of refund marks that are kept in a merge.
	keptMarks = 32
)

// A window is the state of one key under one limit: a log of permits, each of which returns
// exactly one length after it was taken (sliding log). Times and lengths are milliseconds;
// time is always an argument, and may stand still or go backwards.
//
// Merging keeps the latest of the merged times. So a permit may return up to
// length/mergeSlots late but never early, and no period of one length contains more permits
// than the rate's count.
//
// The zero window has no permits taken.
type window struct {
	entries []entry // oldest first
	taken   int64   // the sum of all entries' permits
	// floor is a time: permits that were taken until then and have been merged since are
	// not refunded early, because it is unknown whether they already were.
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
	merged             // permits of several decisions, with the latest of their times
	mark               // no permits: id was refunded
)

// advance drops permits that have returned at now. Entries in the future were written
// before the clock was set back; they get the time now.
func (w *window) advance(now, length int64) {
	for i := len(w.entries) - 1; i >= 0 && w.entries[i].at > now; i-- {
		w.entries[i].at = now
	}
	gone := 0
	for gone < len(w.entries) && w.entries[gone].at <= now-length {
		w.taken -= int64(w.entries[gone].n)
		gone++
	}
	if gone > 0 {
		w.entries = w.entries[:copy(w.entries, w.entries[gone:])]
	}
}

// newest returns the time of the newest entry, 0 if there is none.
func (w *window) newest() int64 {
	if len(w.entries) == 0 {
		return 0
	}
	return w.entries[len(w.entries)-1].at
}

// left returns the number of permits left of count; the window must be advanced. It is
// negative if more are taken than a lowered count allows.
func (w *window) left(count int64) int64 { return count - w.taken }

// wait returns the time from now until cost permits of count are left; 0 is at once. It is
// exact, and never longer than length.
func (w *window) wait(now, length, count, cost int64) int64 {
	short := cost - w.left(count)
	if short <= 0 {
		return 0
	}
	for _, e := range w.entries {
		if short -= int64(e.n); short <= 0 {
			return e.at + length - now
		}
	}
	return length
}

// take takes cost permits at now, with this id.
func (w *window) take(now int64, id [16]byte, cost int64) {
	w.entries = append(w.entries, entry{at: now, n: uint32(cost), id: id})
	w.taken += cost
}

// compact takes cost permits at now without a new entry: it merges them into the newest
// one, which gets the time now. There must be one.
func (w *window) compact(now, cost int64) {
	last := &w.entries[len(w.entries)-1]
	if last.kind == mark {
		w.floor = max(w.floor, last.at)
	}
	last.at, last.n, last.kind = now, last.n+uint32(cost), merged
	w.taken += cost
}

// refund refunds the permits that p took for c, and returns their number: 0 if they have
// already returned. The window must be advanced to now. If entries may be merged, because
// the count is above fullWindow, a mark records each refunded id.
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

// refundMerged subtracts cost from the entry into which time at was merged: the first
// merged one that is not older.
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

// release refunds the permits with this id.
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

// renew sets the time of the permits with this id to now, and reports whether they were
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
		some := min(n, int64(e.n))
		e.n -= uint32(some)
		w.taken -= some
		n -= some
		if e.kind == single && some > 0 {
			e.kind = merged // a refund subtracts what is left of it
		}
	}
}

// unmarked reports whether it is certain that id, taken at time at, was not refunded.
func (w *window) unmarked(at int64, id [16]byte) bool {
	return at > w.floor && !slices.ContainsFunc(w.entries, func(e entry) bool { return e.kind == mark && e.id == id })
}

// remember adds a mark for a refunded id, and drops the oldest mark if there are many.
func (w *window) remember(at int64, id [16]byte) {
	if len(w.entries) >= mergeSlots {
		w.floor = max(w.floor, w.entries[0].at)
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.insert(entry{at: at, kind: mark, id: id})
}

// insert adds e in the order of times.
func (w *window) insert(e entry) {
	i := len(w.entries)
	for i > 0 && w.entries[i-1].at > e.at {
		i--
	}
	w.entries = slices.Insert(w.entries, i, e)
}

// merge merges all entries whose times are in the same slot, keeps the latest time of each
// slot, and drops all but the latest marks. Slots are counted from time 0, so that merging
// again changes nothing.
func (w *window) merge(length int64) {
	width := (length + mergeSlots - 1) / mergeSlots
	marks := 0
	for _, e := range w.entries {
		if e.kind == mark {
			marks++
		}
	}
	kept, last := w.entries[:0], -1 // last is the newest kept entry with permits
	for _, e := range w.entries {
		switch {
		case e.kind == mark && marks > keptMarks:
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
	slices.SortStableFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
}
