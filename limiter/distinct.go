package limiter

import (
	"encoding/binary"
	"slices"
)

// MaxDistinct is the largest Rate.Count of a Distinct limit.
const MaxDistinct = 1000

// The log of a Distinct limit has an entry for each of the last maxUses uses of a value
// and one for the earlier uses, which can no longer be refunded. An entry's id holds 8
// bytes of the permit's ID and 8 bytes of the value. The newest entry of a value has its
// one permit; the others have none. One entry of kind unknown stands for several values.
const maxUses = 2

// takeDistinct records a use of value at now, under id.
func (s *keyState) takeDistinct(now int64, id [16]byte, value Key) {
	s.supersede(value.prefix())
	copy(id[8:], value[:8])
	s.entries = append(s.entries, entry{at: now, n: 1, id: id})
	s.taken++
}

// refundDistinct removes the use by p. The value keeps its other uses, and is not active
// without any. It returns 1 if the use was found, otherwise 0.
func (s *keyState) refundDistinct(p Permit) int64 {
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.kind == single && [8]byte(e.id[:8]) == [8]byte(p.ID[:8]) })
	if i < 0 {
		return 0
	}
	removed := s.entries[i]
	s.entries = slices.Delete(s.entries, i, i+1)
	if removed.n == 0 {
		return 1
	}
	if before := s.lastUse(removed.valuePrefix()); before >= 0 {
		s.entries[before].n += removed.n
	} else {
		s.taken -= int64(removed.n)
	}
	return 1
}

// grantDistinct removes the n values that were used last.
func (s *keyState) grantDistinct(n int64) {
	for i := len(s.entries) - 1; i >= 0 && n > 0; i = min(i, len(s.entries)) - 1 {
		newest := &s.entries[i]
		if newest.n == 0 {
			continue
		}
		if newest.kind == unknown {
			some := min(n, int64(newest.n))
			newest.n, s.taken, n = newest.n-uint32(some), s.taken-some, n-some
			continue
		}
		value := newest.valuePrefix()
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool {
			if e.isUseOf(value) {
				s.taken -= int64(e.n)
				n -= int64(e.n)
			}
			return e.isUseOf(value)
		})
	}
}

// hasValue reports whether value was used within the window. advance must have been
// called.
func (s *keyState) hasValue(value Key) bool { return s.lastUse(value.prefix()) >= 0 }

// lastUse returns the index of the newest entry of a value, -1 if it is not active.
func (s *keyState) lastUse(value uint64) int {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.entries[i].isUseOf(value) {
			return i
		}
	}
	return -1
}

// supersede removes the permit of a value, for a newer use of it, and merges the uses
// that can no longer be refunded.
func (s *keyState) supersede(value uint64) {
	newest := s.lastUse(value)
	if newest < 0 {
		return
	}
	s.entries[newest].n--
	s.taken--
	uses, hasMerged := 0, false
	for i := newest; i >= 0; i-- {
		e := &s.entries[i]
		switch {
		case !e.isUseOf(value):
		case e.kind == single && uses < maxUses-1:
			uses++
		case e.n == 0 && hasMerged:
			s.entries = slices.Delete(s.entries, i, i+1)
		default:
			e.kind, hasMerged = merged, true
		}
	}
}

// addUnknownUses records n values that other processes used and whose identity is
// unknown. They differ from all other values and cannot be refunded.
func (s *keyState) addUnknownUses(now, n int64) {
	if n <= 0 {
		return
	}
	s.entries = append(s.entries, entry{at: now, n: uint32(n), kind: unknown})
	s.taken += n
}

// isUseOf reports whether e is a use of the value with this prefix.
func (e *entry) isUseOf(value uint64) bool { return e.kind != unknown && e.valuePrefix() == value }

// valuePrefix returns the value of an entry of a Distinct limit.
func (e *entry) valuePrefix() uint64 { return binary.LittleEndian.Uint64(e.id[8:]) }

// prefix returns the part of a value that entries store.
func (k Key) prefix() uint64 { return binary.LittleEndian.Uint64(k[:8]) }
