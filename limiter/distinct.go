package limiter

import (
	"encoding/binary"
	"slices"
)

// The window of a Distinct limit has an entry for each of the last keptUses uses of a
// value, with the permit's id and 8 bytes of the value, and one more for all earlier uses,
// which can no longer be refunded. Only the newest entry of a value holds a permit.
const keptUses = 2

// valueOf returns the value of an entry of a Distinct limit.
func (e *entry) valueOf() uint64 { return binary.LittleEndian.Uint64(e.id[8:]) }

// short returns a value as entries store it.
func (k Key) short() uint64 { return binary.LittleEndian.Uint64(k[:8]) }

// stands reports whether value was used within the window, which must be advanced.
func (w *window) stands(value Key) bool { return w.last(value.short()) >= 0 }

// last returns the index of the newest entry of a value, -1 if there is none.
func (w *window) last(value uint64) int {
	for i := len(w.entries) - 1; i >= 0; i-- {
		if w.entries[i].valueOf() == value {
			return i
		}
	}
	return -1
}

// use records a use of value at now, with this id.
func (w *window) use(now int64, id [16]byte, value Key) {
	w.supersede(value.short())
	copy(id[8:], value[:8])
	w.entries = append(w.entries, entry{at: now, n: 1, id: id})
	w.taken++
}

// supersede moves the permit of a value to a newer use of it, and merges the uses that can
// no longer be refunded.
func (w *window) supersede(value uint64) {
	newest := w.last(value)
	if newest < 0 {
		return
	}
	w.entries[newest].n--
	w.taken--
	uses, kept := 0, false
	for i := newest; i >= 0; i-- {
		e := &w.entries[i]
		switch {
		case e.valueOf() != value:
		case e.kind == single && uses < keptUses-1:
			uses++
		case e.n == 0 && kept:
			w.entries = slices.Delete(w.entries, i, i+1)
		default:
			e.kind, kept = merged, true
		}
	}
}

// unuse refunds the use with this id: its value counts as if it had not been used then, and
// not at all without another use. It returns 1 if there was such a use.
func (w *window) unuse(id [16]byte) int64 {
	i := slices.IndexFunc(w.entries, func(e entry) bool { return e.kind == single && [8]byte(e.id[:8]) == [8]byte(id[:8]) })
	if i < 0 {
		return 0
	}
	gone := w.entries[i]
	w.entries = slices.Delete(w.entries, i, i+1)
	if gone.n == 0 {
		return 1
	}
	if before := w.last(gone.valueOf()); before >= 0 {
		w.entries[before].n += gone.n
	} else {
		w.taken -= int64(gone.n)
	}
	return 1
}

// grantValues removes the n values that were used last.
func (w *window) grantValues(n int64) {
	for i := len(w.entries) - 1; i >= 0 && n > 0; i = min(i, len(w.entries)) - 1 {
		if w.entries[i].n == 0 {
			continue
		}
		value := w.entries[i].valueOf()
		w.entries = slices.DeleteFunc(w.entries, func(e entry) bool {
			if e.valueOf() == value {
				w.taken -= int64(e.n)
				n -= int64(e.n)
			}
			return e.valueOf() == value
		})
	}
}

// useUnknown records n unknown values that other processes used; they differ from all
// others, and cannot be refunded.
func (w *window) useUnknown(now, n int64) {
	if n <= 0 {
		return
	}
	w.entries = append(w.entries, entry{at: now, n: uint32(n), kind: merged})
	w.taken += n
}
