package http1

import (
	"encoding/binary"
	"math/bits"
)

// Classes of bytes in the grammar of HTTP/1.1. Each class is a bit.
const (
	tokenChar  = 1 << iota // a character of a method or field name (RFC 9110 section 5.6.2)
	targetChar             // allowed in a request target: printable ASCII without "#"
	valueChar              // allowed in a field value: HTAB, SP, VCHAR, obs-text (RFC 9110 section 5.5)
	hostChar               // allowed in a registered name (RFC 3986 section 3.2.2), except "%" and ","
	hexChar
	plainChar // a letter, a digit or a hyphen; most field names consist of these
)

// classes holds the classes of all 256 bytes, 16 per line. It is a constant string
// because the compiler indexes it by a byte without a bounds check.
const classes = "" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x04\x0f\x06\x05\x0f\x07\x0f\x0f\x0e\x0e\x0f\x0f\x06\x2f\x0f\x06" +
	"\x3f\x3f\x3f\x3f\x3f\x3f\x3f\x3f\x3f\x3f\x06\x0e\x06\x0e\x06\x06" +
	"\x06\x3f\x3f\x3f\x3f\x3f\x3f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f" +
	"\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x06\x06\x06\x07\x0f" +
	"\x07\x3f\x3f\x3f\x3f\x3f\x3f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f" +
	"\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x2f\x06\x07\x06\x0f\x00" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04" +
	"\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04\x04"

// isClass reports whether c belongs to the class.
func isClass(c byte, class byte) bool { return classes[c]&class != 0 }

// allOf reports whether every byte of s belongs to the class.
func allOf[S string | []byte](s S, class byte) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// The functions below process eight bytes at once as a little-endian number (SWAR).
const (
	lowBits  = 0x0101010101010101
	highBits = lowBits << 7
)

// zeroByte returns a number whose lowest bit in highBits marks the first zero byte of
// w. Later bits may be wrong: subtracting 1 from a zero byte borrows from the next
// byte.
func zeroByte(w uint64) uint64 { return (w - lowBits) &^ w & highBits }

// notPrintable is like zeroByte for the first byte that is not printable ASCII. The
// addition sets the high bit of DEL, the subtraction that of a control character.
func notPrintable(w uint64) uint64 { return (w | (w + lowBits) | (w - lowBits*' ')) & highBits }

// byteIndex returns the index of the byte of the lowest bit of the mask.
func byteIndex(at uint64) int { return bits.TrailingZeros64(at) / 8 }

// loadUint64 returns the first eight bytes of s.
func loadUint64(s string) uint64 { return binary.LittleEndian.Uint64([]byte(s)) }

// valueLength returns how many bytes at the beginning of b are allowed in a field
// value. It checks eight bytes at once if they are printable ASCII.
func valueLength(b []byte) int {
	i := 0
	for ; i <= len(b)-8; i += 8 {
		at := notPrintable(binary.LittleEndian.Uint64(b[i:]))
		if at == 0 {
			continue
		}
		j := i + byteIndex(at)
		if b[j] == '\r' { // the usual end
			return j
		}
		for ; j < i+8; j++ {
			if !isClass(b[j], valueChar) {
				return j
			}
		}
	}
	for ; i < len(b); i++ {
		if !isClass(b[i], valueChar) {
			return i
		}
	}
	return i
}

// lower returns the lower-case form of an ASCII letter, and any other byte unchanged.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// foldedDiff returns 0 if the eight bytes of a equal those of b, ignoring the case of
// ASCII letters. The bytes of b that are not letters must be less than "@": the bit 0x40
// is then set only in letters, and it marks the bytes in which 0x20 is ignored.
func foldedDiff(a, b uint64) uint64 { return (a ^ b) &^ (b >> 1 & (lowBits * 0x20)) }

// equalFoldLower reports whether s equals small, ignoring the case of ASCII letters.
// Other characters of small must be less than "@", see foldedDiff.
func equalFoldLower(s, small string) bool {
	if len(s) != len(small) {
		return false
	}
	if len(s) < 8 {
		for i := range len(s) {
			if foldedDiff(uint64(s[i]), uint64(small[i])) != 0 {
				return false
			}
		}
		return true
	}
	for i := 0; i < len(s)-8; i += 8 {
		if foldedDiff(loadUint64(s[i:]), loadUint64(small[i:])) != 0 {
			return false
		}
	}
	// The last eight bytes may overlap with those before.
	return foldedDiff(loadUint64(s[len(s)-8:]), loadUint64(small[len(small)-8:])) == 0
}

// trim returns s without leading and trailing SP and HTAB. Removing other characters
// would make it interpret a field differently than other servers do.
func trim[S string | []byte](s S) S {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
