package limiter

import (
	"cmp"
	"slices"
)

const (
	// A window of more than fullWindow entries is merged into mergeSlots parts
	// of its length, so that a key stays small at any rate.
	fullWindow = 128
	mergeSlots = 64
	// maxMarks is how many marks of refunds outlive a merge.
	maxMarks = 32
)

// A window is what one key has taken of one limit: a log of permits, each of
// which comes back exactly one length after it was taken. Times and lengths are
// milliseconds; time is always an argument and may stand still or step back.
//
// Merging keeps the latest of the merged times. So a permit may come back up to
// length/mergeSlots late but never early, and in no stretch of one length are
// more permits out than the rate's count.
//
// The zero window is one of which nothing was taken.
type window struct {
	entries []entry // oldest first
	taken   int64   // the sum of all entries' permits
	// floor is a time: permits taken until then that were merged since are not
	// given back early, because it is no longer known whether they already were.
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
	single kind = iota // permits of one decision, under its id
	merged             // permits of several decisions, at the latest of their times
	mark               // no permits: id was given back
)

// advance drops what has come back at now. Entries of the future were written
// before the clock was set back; they were taken now at the latest.
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

// newestTime is the time of the youngest entry, 0 when there is none.
func (w *window) newestTime() int64 {
	if len(w.entries) == 0 {
		return 0
	}
	return w.entries[len(w.entries)-1].at
}

// remaining is how many permits of count are left in a settled window. It is
// negative while a count that was lowered is overdrawn.
func (w *window) remaining(count int64) int64 { return count - w.taken }

// wait is the time from now until cost permits of count are left; 0 is at once.
// It is exact and never longer than length.
func (w *window) wait(now, length, count, cost int64) int64 {
	short := cost - w.remaining(count)
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

// take takes cost permits at now, under id.
func (w *window) take(now int64, id [16]byte, cost int64) {
	w.entries = append(w.entries, entry{at: now, n: uint32(cost), id: id})
	w.taken += cost
}

// addToNewest takes cost permits at now without a new entry: they join the newest,
// which is then as young as they are. There must be one.
func (w *window) addToNewest(now, cost int64) {
	last := &w.entries[len(w.entries)-1]
	if last.kind == mark {
		w.floor = max(w.floor, last.at)
	}
	last.at, last.n, last.kind = now, last.n+uint32(cost), merged
	w.taken += cost
}

// refund gives back to a window that is settled at now what p took for c, and
// returns how many permits: 0 if they have come back already. Each id that was
// given back is remembered where entries may be merged: above a count of
// fullWindow.
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

// refundMerged takes cost out of the entry that at was merged into: the first
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

// release gives back at once what was taken under id.
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

// renew makes what was taken under id as young as now, and reports whether it
// was still out.
func (w *window) renew(now int64, id [16]byte) bool {
	n := w.release(id)
	if n == 0 {
		return false
	}
	w.take(now, id, n)
	return true
}

// grant takes n permits out of the youngest entries.
func (w *window) grant(n int64) {
	for i := len(w.entries) - 1; i >= 0 && n > 0; i-- {
		e := &w.entries[i]
		some := min(n, int64(e.n))
		e.n -= uint32(some)
		w.taken -= some
		n -= some
		if e.kind == single && some > 0 {
			e.kind = merged // a refund takes what is left of it, not all of it
		}
	}
}

// isUnmarked reports whether it is certain that id, taken at the time at, was not
// given back.
func (w *window) isUnmarked(at int64, id [16]byte) bool {
	return at > w.floor && !slices.ContainsFunc(w.entries, func(e entry) bool { return e.kind == mark && e.id == id })
}

// addMark marks id as given back, and forgets the oldest mark for it when there
// are many.
func (w *window) addMark(at int64, id [16]byte) {
	if len(w.entries) >= mergeSlots {
		w.floor = max(w.floor, w.entries[0].at)
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.insert(entry{at: at, kind: mark, id: id})
}

// insert puts e where its time belongs.
func (w *window) insert(e entry) {
	i := len(w.entries)
	for i > 0 && w.entries[i-1].at > e.at {
		i--
	}
	w.entries = slices.Insert(w.entries, i, e)
}

// merge makes one entry of all those whose times lie in the same slot, keeping
// the latest time, and forgets all but the latest marks. Slots are counted from
// time 0, so that merging again changes nothing that is merged.
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
	slices.SortStableFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
}
