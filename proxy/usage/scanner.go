package usage

import (
	"bytes"
	"math/bits"
)

// A scanner follows the structure of JSON documents, one after the other, by which the paths of a format lead. It does not
// check that a document is well formed: what follows a fault is not found.
type scanner struct {
	open    [maxNames]level // the objects and arrays around, as far as a path may lead through them
	live    int             // their number
	ignored int             // how many others are open within
	at      level           // where the next value is
	wants   bool            // the next string is the name of a member
	string  stringKind
	escaped bool // the next character of the string is
	number  bool // a number that a path leads to is being read
	text    [32]byte
	length  int // of the name or number in text; beyond its size if it is too long
}

const maxNames = 8

// A level is an object or an array, or the place of a value.
type level struct {
	paths uint16 // that lead here
	depth uint8  // how many of their names have
	array bool
}

type stringKind uint8

const (
	noString stringKind = iota
	anyString
	memberName
)

// begin prepares s for a document.
func (s *scanner) begin(f *Format) { s.at = level{paths: 1<<len(f.paths) - 1} }

// isWithin reports whether a document has begun.
func (s *scanner) isWithin() bool { return s.live > 0 || s.ignored > 0 || s.string != noString }

// next reads p until the end of a number to which a path leads, whose index it returns, or to its end; then that is -1. It
// returns how much was read.
func (s *scanner) next(p []byte, f *Format) (n, found int) {
	for i := 0; i < len(p); i++ {
		if s.string != noString {
			i += s.inString(p[i:], f)
			continue
		}
		for s.ignored > 0 && i < len(p)-1 && p[i] != '"' && p[i]|0x20 != '{' && p[i]|0x20 != '}' {
			i++ // [ and ] differ from { and } in that bit
		}
		c := p[i]
		if s.number {
			if c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E' {
				s.keep(p[i : i+1])
				continue
			}
			if found = s.endNumber(f); found >= 0 {
				return i, found
			}
		}
		switch c {
		case '"':
			s.string = anyString
			if s.wants && s.ignored == 0 {
				s.string, s.length = memberName, 0
			}
		case '{', '[':
			s.enter(c)
		case '}', ']':
			s.leave(f)
		case ',':
			s.separate()
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if s.ignored == 0 && s.live > 0 && s.leads(f) != 0 {
				s.number, s.length = true, 0
				s.keep(p[i : i+1])
			}
		}
	}
	return len(p), -1
}

// inString reads p to the end of the string, and returns the index of the last byte that it has read. A name with an escape
// keeps its backslash, which no name of a path has.
func (s *scanner) inString(p []byte, f *Format) int {
	for from := 0; from < len(p); {
		part := p[from:]
		end := bytes.IndexByte(part, '"')
		if end >= 0 {
			part = part[:end]
		}
		if s.string == memberName {
			s.keep(part)
		}
		escapes := len(part) - len(bytes.TrimRight(part, `\`))
		isOdd := escapes%2 == 1
		s.escaped = isOdd != (s.escaped && escapes == len(part))
		if end < 0 {
			break
		}
		if from += end + 1; !s.escaped {
			if s.string == memberName {
				s.name(f)
			}
			s.string = noString
			return from - 1
		}
		s.escaped = false
	}
	return len(p) - 1
}

// keep adds a part to the name or number that is being read.
func (s *scanner) keep(part []byte) {
	if s.length+len(part) <= len(s.text) {
		copy(s.text[s.length:], part)
	}
	s.length += len(part)
}

// name makes the next value that of the member whose name was read.
func (s *scanner) name(f *Format) {
	in := &s.open[s.live-1]
	s.wants, s.at = false, level{depth: in.depth + 1}
	if s.length > len(s.text) {
		return
	}
	for left := in.paths; left != 0; left &= left - 1 {
		i := bits.TrailingZeros16(left)
		if names := f.paths[i].names; int(in.depth) < len(names) && names[in.depth] == string(s.text[:s.length]) {
			s.at.paths |= 1 << i
		}
	}
}

// leads returns the paths that end at the next value.
func (s *scanner) leads(f *Format) (ended uint16) {
	for left := s.at.paths; left != 0; left &= left - 1 {
		if i := bits.TrailingZeros16(left); len(f.paths[i].names) == int(s.at.depth) {
			ended |= 1 << i
		}
	}
	return ended
}

// endNumber ends the number, and returns the index of its path, or -1 if it is too long.
func (s *scanner) endNumber(f *Format) int {
	s.number = false
	if s.length > len(s.text) {
		return -1
	}
	return bits.TrailingZeros16(s.leads(f))
}

// enter begins an object or an array, by its bracket. An array around all is one of documents.
func (s *scanner) enter(bracket byte) {
	array := bracket == '['
	if s.ignored > 0 || s.at.paths == 0 || s.live == maxNames || array && s.at.depth > 0 {
		s.ignored++
		return
	}
	s.at.array = array
	s.open[s.live] = s.at
	s.live++
	s.wants = !array
	if !array {
		s.at = level{}
	}
}

// leave ends one.
func (s *scanner) leave(f *Format) {
	switch {
	case s.ignored > 0:
		s.ignored--
		return
	case s.live > 0:
		s.live--
	}
	s.wants, s.at = false, level{}
	if s.live == 0 {
		s.begin(f)
	}
}

// separate begins the next member or element.
func (s *scanner) separate() {
	if s.ignored > 0 || s.live == 0 {
		return
	}
	in := s.open[s.live-1]
	s.wants, s.at = !in.array, level{}
	if in.array {
		s.at = level{paths: in.paths}
	}
}
