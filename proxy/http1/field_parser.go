package http1

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A fieldParser parses field lines up to the empty line that ends them: those of a
// head, or of a trailer section. It can be called again with more of the same
// bytes; lines that are whole are not parsed twice.
type fieldParser struct {
	next    int // where the first line begins that has not been parsed; 0 before the start line of a head
	scanned int // there is no line feed from next up to here
}

// atStart reports whether the start line of a head has not been parsed.
func (p *fieldParser) atStart() bool { return p.next == 0 }

// fieldLimits bound the size of a section.
type fieldLimits struct {
	bytes, lines int
	lenient      bool // the section is that of a response: LF may end a line, and blanks may precede a colon
}

// parse parses the lines of buf into f. done is true if the section has ended, at
// p.next. Otherwise parse must be called again with more bytes. Bytes beyond the limit
// are not parsed.
func (p *fieldParser) parse(buf []byte, f *Fields, limits fieldLimits) (done bool, err error) {
	if p.next > limits.bytes { // because of the start line
		return false, ErrTooLarge
	}
	b := buf[:min(len(buf), limits.bytes)]
	f.buf = b
	if p.scanned <= p.next || !p.lineIncomplete(b) {
		done, err = p.lines(f, limits)
		p.scanned = len(b)
	}
	if !done && err == nil && len(buf) > limits.bytes {
		return false, ErrTooLarge
	}
	return done, err
}

// lines parses whole lines and adds them to f. done is true if the last one is empty.
func (p *fieldParser) lines(f *Fields, limits fieldLimits) (done bool, err error) {
	b, at := f.buf, p.next
	for at < len(b) && b[at] != '\r' {
		id, name := knownName(b[at:])
		colon := at + name
		if id == Other {
			if limits.lenient && b[at] == '\n' {
				break
			}
			if id, name, colon, err = f.otherName(b[at:], limits); name == 0 {
				return false, err
			}
			colon += at
		}
		value := colon + 1
		if value < len(b) && b[value] == ' ' {
			value++
		}
		end := value + valueLength(b[value:])
		next := end + 2
		generated := value == at+name+2 // without blanks before the colon
		if end > len(b)-2 || b[end] != '\r' || b[end+1] != '\n' {
			if next, err = lineEnd(b, end, limits); next == 0 {
				return false, err
			}
			generated = false
		}
		if b[value] <= ' ' || b[end-1] <= ' ' { // more blanks, or an empty value
			end = value + len(bytes.TrimRight(b[value:end], " \t"))
			value = end - len(bytes.TrimLeft(b[value:end], " \t"))
			generated = false
		}
		if len(f.lines) == limits.lines {
			return false, ErrTooManyFields
		}
		f.lines = append(f.lines, fieldLine{
			name: uint32(at), nameEnd: uint32(at + name), value: uint32(value), valueEnd: uint32(end),
			id: id, generated: generated,
		})
		f.present |= 1 << id
		if id == Connection {
			f.addOptions(bufString(b, uint32(value), uint32(end)))
		}
		at, p.next = next, next
	}
	end, err := lineEnd(b, at, limits)
	if end == 0 {
		return false, err
	}
	p.next = end
	return true, nil
}

// lineIncomplete reports whether the line that was incomplete at the last call, at
// p.scanned, is still incomplete. That is cheaper than parsing it again.
func (p *fieldParser) lineIncomplete(buf []byte) bool {
	if bytes.IndexByte(buf[p.scanned:], '\n') >= 0 {
		return false
	}
	p.scanned = len(buf)
	return true
}

// otherName finds the name at the beginning of b and checks each character. end is its
// length, or 0 if the line is incomplete or invalid. Blanks before the colon of a response
// are left out (RFC 9112 section 5.1).
func (f *Fields) otherName(b []byte, limits fieldLimits) (id Name, end, colon int, err error) {
	common := byte(plainChar)
	for end < len(b) && isClass(b[end], tokenChar) {
		common &= classes[b[end]]
		end++
	}
	for colon = end; limits.lenient && end > 0 && colon < len(b) && (b[colon] == ' ' || b[colon] == '\t'); {
		colon++
	}
	switch {
	case colon == len(b):
		return Other, 0, 0, nil
	case end == 0 && (b[0] == ' ' || b[0] == '\t'):
		return Other, 0, 0, ErrFoldedLine
	case end == 0 || b[colon] != ':':
		return Other, 0, 0, ErrFieldName
	}
	f.unusualNames = f.unusualNames || common == 0
	id = LookupName(bufString(b, 0, uint32(end))) // Other, unless knownName has omitted the end of the buffer
	return id, end, colon, nil
}

// lineEnd returns the end of a line whose CRLF must be at b[at], or 0 if the CRLF is
// incomplete. A line of a response may end with LF (RFC 9112 section 2.2).
func lineEnd(b []byte, at int, limits fieldLimits) (int, error) {
	switch rest := b[at:]; {
	case len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n':
		return at + 2, nil
	case len(rest) == 0, len(rest) == 1 && rest[0] == '\r':
		return 0, nil
	case limits.lenient && rest[0] == '\n':
		return at + 1, nil
	case rest[0] != '\r' && rest[0] != '\n':
		return 0, ErrFieldValue
	}
	return 0, ErrLineEnd
}

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
