package http1

import (
	"encoding/binary"
	"math/bits"
)

// The classes of bytes that the grammar of HTTP/1.1 knows. A byte has a bit for
// each class that it belongs to.
const (
	tokenChar  = 1 << iota // a letter of a method or a field name (RFC 9110 section 5.6.2)
	targetChar             // may stand in a request target: printable ASCII without "#"
	valueChar              // may stand in a field value: HTAB, SP, VCHAR, obs-text (section 5.5)
	hostChar               // may stand in a registered name (RFC 3986 section 3.2.2), but for ","
	hexChar
	plainChar // a letter, a digit or a hyphen: what most field names are made of
)

// classes has the classes of each of the 256 bytes, 16 a line. It is a constant
// string, which the compiler indexes by a byte without a check.
const classes = "" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x04\x0f\x06\x05\x0f\x0f\x0f\x0f\x0e\x0e\x0f\x0f\x06\x2f\x0f\x06" +
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

// isClass reports whether c is of the class.
func isClass(c byte, class byte) bool { return classes[c]&class != 0 }

// allOf reports whether every byte of s is of the class.
func allOf[S string | []byte](s S, class byte) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// Eight bytes are looked at together as digits of a number, the first as the lowest.
const (
	lowBits  = 0x0101010101010101
	highBits = lowBits << 7
)

// zeroByte has a bit in tops for the first byte of c that is zero, and maybe for some behind
// it: one is subtracted from each byte, and borrows from that one.
func zeroByte(c uint64) uint64 { return (c - lowBits) &^ c & highBits }

// controlByte has a bit in tops for the first byte of c that is less than a space, or DEL, and
// maybe for some behind it.
func controlByte(c uint64) uint64 { return (c-lowBits*' ')&^c&highBits | zeroByte(c^lowBits*0x7f) }

// byteIndex is which byte the first bit in tops belongs to.
func byteIndex(at uint64) int { return bits.TrailingZeros64(at) / 8 }

// loadUint64 are the first eight bytes of s.
func loadUint64[S string | []byte](s S) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// valueLength is how many bytes at the beginning of b may stand in a value: of eight
// together, up to the first that is less than a space, or DEL.
func valueLength(b []byte) int {
	i := 0
	for i+8 <= len(b) {
		at := controlByte(binary.LittleEndian.Uint64(b[i:]))
		if at == 0 {
			i += 8
			continue
		}
		if i += byteIndex(at); classes[b[i]]&valueChar == 0 {
			return i
		}
		i++ // a tab
	}
	if i < len(b) && len(b) >= 8 && controlByte(binary.LittleEndian.Uint64(b[len(b)-8:])) == 0 {
		return len(b) // some of the last eight were looked at before
	}
	for ; i < len(b); i++ {
		if classes[b[i]]&valueChar == 0 {
			return i
		}
	}
	return len(b)
}

// lower is the small letter of an ASCII letter, and any other byte as it is.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// equalFoldLower reports whether s is the same as small but for the case of ASCII letters.
// small must be in lower case, and of the rest of ASCII have only what is less than "@".
// Where it has a letter, and nowhere else, 0x40 is set, and 0x20 makes no difference.
func equalFoldLower[S string | []byte](s S, small string) bool {
	if len(s) != len(small) {
		return false
	}
	if len(s) < 8 {
		for i := range len(s) {
			if (s[i]^small[i])&^(small[i]>>1&0x20) != 0 {
				return false
			}
		}
		return true
	}
	for i := 0; ; i = min(i+8, len(s)-8) { // the last eight may be some of those before
		a, b := loadUint64(s[i:]), loadUint64(small[i:])
		if (a^b)&^(b>>1&(lowBits*0x20)) != 0 {
			return false
		}
		if i == len(s)-8 {
			return true
		}
	}
}

// trim is s without whitespace around it. Only SP and HTAB are whitespace:
// whoever trims more reads a field that another server does not see.
func trim[S string | []byte](s S) S {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
