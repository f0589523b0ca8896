package limiter

import (
	"encoding/binary"
	"slices"
)

// A window of Distinct has an entry for each of the last maxUses uses of a value,
// under the permit's id and the value, 8 bytes each, and one more for those before,
// which can no longer be given back. The newest entry of a value has the permit that
// the value takes; the others have none.
const maxUses = 2

// valuePrefix is what an entry of a Distinct limit was used with.
func (e *entry) valuePrefix() uint64 { return binary.LittleEndian.Uint64(e.id[8:]) }

// prefix is a value as entries keep it.
func (k Key) prefix() uint64 { return binary.LittleEndian.Uint64(k[:8]) }

// hasValue reports whether value was used within the window, which is settled.
func (w *window) hasValue(value Key) bool { return w.lastUse(value.prefix()) >= 0 }

// lastUse is the newest entry of a value, -1 if it does not stand.
func (w *window) lastUse(value uint64) int {
	for i := len(w.entries) - 1; i >= 0; i-- {
		if w.entries[i].valuePrefix() == value {
			return i
		}
	}
	return -1
}

// addUse notes that value is used at now, under id.
func (w *window) addUse(now int64, id [16]byte, value Key) {
	w.supersede(value.prefix())
	copy(id[8:], value[:8])
	w.entries = append(w.entries, entry{at: now, n: 1, id: id})
	w.taken++
}

// supersede takes the permit of a value away, for a newer use of it, and makes one
// entry of those uses that can no longer be given back.
func (w *window) supersede(value uint64) {
	newest := w.lastUse(value)
	if newest < 0 {
		return
	}
	w.entries[newest].n--
	w.taken--
	uses, kept := 0, false
	for i := newest; i >= 0; i-- {
		e := &w.entries[i]
		switch {
		case e.valuePrefix() != value:
		case e.kind == single && uses < maxUses-1:
			uses++
		case e.n == 0 && kept:
			w.entries = slices.Delete(w.entries, i, i+1)
		default:
			e.kind, kept = merged, true
		}
	}
}

// removeUse gives back the use under id: its value stands as if it had not been, and
// not at all without another use. It returns 1 if there was one.
func (w *window) removeUse(id [16]byte) int64 {
	i := slices.IndexFunc(w.entries, func(e entry) bool { return e.kind == single && [8]byte(e.id[:8]) == [8]byte(id[:8]) })
	if i < 0 {
		return 0
	}
	gone := w.entries[i]
	w.entries = slices.Delete(w.entries, i, i+1)
	if gone.n == 0 {
		return 1
	}
	if before := w.lastUse(gone.valuePrefix()); before >= 0 {
		w.entries[before].n += gone.n
	} else {
		w.taken -= int64(gone.n)
	}
	return 1
}

// grantValues forgets the n values that were used last.
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

// addUnknownUses notes n values that others are known to use, but not which; they can
// be told from all others, and not given back.
func (w *window) addUnknownUses(now, n int64) {
	if n <= 0 {
		return
	}
	w.entries = append(w.entries, entry{at: now, n: uint32(n), kind: merged})
	w.taken += n
}
