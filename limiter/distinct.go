package limiter

import (
	"encoding/binary"
	"slices"
)

// The window of a Distinct limit has an entry for each of the last maxUses uses of a
// value and one for the earlier uses, which can no longer be refunded. An entry's id
// holds 8 bytes of the permit's ID and 8 bytes of the value. The newest entry of a value
// has its one permit; the others have none.
const maxUses = 2

// valuePrefix returns the value of an entry of a Distinct limit.
func (e *entry) valuePrefix() uint64 { return binary.LittleEndian.Uint64(e.id[8:]) }

// prefix returns the part of a value that entries store.
func (k Key) prefix() uint64 { return binary.LittleEndian.Uint64(k[:8]) }

// hasValue reports whether value was used within the window. advance must have been
// called.
func (w *window) hasValue(value Key) bool { return w.lastUse(value.prefix()) >= 0 }

// lastUse returns the index of the newest entry of a value, -1 if it is not active.
func (w *window) lastUse(value uint64) int {
	for i := len(w.entries) - 1; i >= 0; i-- {
		if w.entries[i].valuePrefix() == value {
			return i
		}
	}
	return -1
}

// addUse records a use of value at now, under id.
func (w *window) addUse(now int64, id [16]byte, value Key) {
	w.supersede(value.prefix())
	copy(id[8:], value[:8])
	w.entries = append(w.entries, entry{at: now, n: 1, id: id})
	w.taken++
}

// supersede removes the permit of a value, for a newer use of it, and merges the uses
// that can no longer be refunded.
func (w *window) supersede(value uint64) {
	newest := w.lastUse(value)
	if newest < 0 {
		return
	}
	w.entries[newest].n--
	w.taken--
	uses, hasMerged := 0, false
	for i := newest; i >= 0; i-- {
		e := &w.entries[i]
		switch {
		case e.valuePrefix() != value:
		case e.kind == single && uses < maxUses-1:
			uses++
		case e.n == 0 && hasMerged:
			w.entries = slices.Delete(w.entries, i, i+1)
		default:
			e.kind, hasMerged = merged, true
		}
	}
}

// removeUse removes the use under id. The value keeps its other uses, and is not active
// without any. It returns 1 if id was found, otherwise 0.
func (w *window) removeUse(id [16]byte) int64 {
	i := slices.IndexFunc(w.entries, func(e entry) bool { return e.kind == single && [8]byte(e.id[:8]) == [8]byte(id[:8]) })
	if i < 0 {
		return 0
	}
	removed := w.entries[i]
	w.entries = slices.Delete(w.entries, i, i+1)
	if removed.n == 0 {
		return 1
	}
	if before := w.lastUse(removed.valuePrefix()); before >= 0 {
		w.entries[before].n += removed.n
	} else {
		w.taken -= int64(removed.n)
	}
	return 1
}

// grantValues removes the n values that were used last.
func (w *window) grantValues(n int64) {
	for i := len(w.entries) - 1; i >= 0 && n > 0; i = min(i, len(w.entries)) - 1 {
		if w.entries[i].n == 0 {
			continue
		}
		value := w.entries[i].valuePrefix()
		w.entries = slices.DeleteFunc(w.entries, func(e entry) bool {
			if e.valuePrefix() == value {
				w.taken -= int64(e.n)
				n -= int64(e.n)
			}
			return e.valuePrefix() == value
		})
	}
}

// addUnknownUses records n values that other processes used and whose identity is
// unknown. They differ from all other values and cannot be refunded.
func (w *window) addUnknownUses(now, n int64) {
	if n <= 0 {
		return
	}
	w.entries = append(w.entries, entry{at: now, n: uint32(n), kind: merged})
	w.taken += n
}
