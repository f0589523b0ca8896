package http1

import "encoding/binary"

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

// is reports whether c is of the class.
func is(c byte, class byte) bool { return classes[c]&class != 0 }

// all reports whether every byte of s is of the class.
func all[S string | []byte](s S, class byte) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// valueLength is how many bytes at the beginning of b may stand in a value. Most values
// have none that may not, so that eight are looked at together, as digits of a number:
// one is subtracted from what must not be less than a blank, and from what must not be
// DEL, and borrows if it is.
func valueLength(b []byte) int {
	const (
		ones  = 0x0101010101010101
		tops  = ones << 7
		blank = ones * ' '
		del   = ones * 0x7f
	)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		c := binary.LittleEndian.Uint64(b[i:])
		if ((c-blank)&^c|((c^del)-ones)&^(c^del))&tops != 0 {
			break // or a tab, or a neighbour of one: each is looked at by itself
		}
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

// fold reports whether s is the same as small but for the case of ASCII letters.
// small must be in lower case.
func fold[S string | []byte](s S, small string) bool {
	if len(s) != len(small) {
		return false
	}
	for i := range len(s) {
		if lower(s[i]) != small[i] {
			return false
		}
	}
	return true
}

// trim is s without blanks around it. Only SP and HTAB are blanks: whoever trims
// more reads a field that another server does not see.
func trim[S string | []byte](s S) S {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
