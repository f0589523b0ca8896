package usage

import "bytes"

const maxNames, maxDigits = 8, 32 // of a path and of a number; a longer number is not counted

// A scanner follows the names of members in JSON documents, one after the other; arrays around a document count as nothing.
// It does not check that a document is well formed: what follows a fault is not found.
type scanner struct {
	path    [maxNames*33 + maxDigits]byte // the names that lead to the next value, as in Format.paths; behind it a number
	length  int                           // of the path and the number; beyond the size of path if they are too long
	ends    [maxNames]int                 // of the paths of the objects around
	live    int                           // their number
	ignored int                           // how many others are open within, with arrays
	wants   bool                          // the next string is the name of a member
	inText  bool                          // a string is being read
	inName  bool                          // and it is the name of a member
	escaped bool                          // the next character of the string is
	number  int                           // where in path the number begins that is being read; 0: none is
}

// isWithin reports whether a document has begun.
func (s *scanner) isWithin() bool { return s.live > 0 || s.ignored > 0 || s.inText }

// read reads a part of a document.
func (r *Reader) read(p []byte) {
	for i := 0; i < len(p); i++ {
		if r.inText {
			i += r.inString(p[i:])
			continue
		}
		for r.ignored > 0 && i < len(p)-1 && p[i] != '"' && p[i]|0x20 != '{' && p[i]|0x20 != '}' {
			i++ // [ and ] differ from { and } in that bit
		}
		c := p[i]
		isNumber := c >= '0' && c <= '9' || c == '-'
		if r.number > 0 {
			if isNumber || c == '.' || c == '+' || c == 'e' || c == 'E' {
				r.keep(p[i : i+1])
				continue
			}
			r.endNumber()
		}
		switch {
		case c == '"':
			r.inText, r.inName = true, r.wants
			if r.wants {
				r.wants, r.length = false, r.ends[r.live-1]
				r.keep(p[i : i+1])
			}
		case c|0x20 == '{':
			r.enter(c)
		case c|0x20 == '}':
			r.leave()
		case r.ignored > 0:
		case c == ',':
			r.wants = r.live > 0
		case isNumber && !r.wants && r.length < len(r.path):
			if _, found := r.format.paths[string(r.path[:r.length])]; found {
				r.number = r.length
				r.keep(p[i : i+1])
			}
		}
	}
}

// inString reads p to the end of the string, and returns the index of the last byte that it has read. A name with an escape
// keeps its backslash, which no name of a path has.
func (s *scanner) inString(p []byte) int {
	for from := 0; from < len(p); {
		part := p[from:]
		end := bytes.IndexByte(part, '"')
		if end >= 0 {
			part = part[:end]
		}
		if s.inName {
			s.keep(part)
		}
		escapes := len(part) - len(bytes.TrimRight(part, `\`))
		isOdd := escapes%2 == 1
		s.escaped = isOdd != (s.escaped && escapes == len(part))
		if end < 0 {
			break
		}
		if from += end + 1; !s.escaped {
			s.inText = false
			return from - 1
		}
		s.escaped = false
	}
	return len(p) - 1
}

// keep adds a part to the path or the number.
func (s *scanner) keep(part []byte) {
	if s.length+len(part) <= len(s.path) {
		copy(s.path[s.length:], part)
	}
	s.length += len(part)
}

// endNumber ends the number, which counts if it is valid.
func (r *Reader) endNumber() {
	if r.length <= len(r.path) && r.length-r.number <= maxDigits {
		if n, valid := Number(string(r.path[r.number:r.length])); valid {
			of := r.format.paths[string(r.path[:r.number])]
			r.greatest[of], r.has = max(r.greatest[of], n), r.has|1<<of
		}
	}
	r.length, r.number = r.number, 0
}

// enter begins an object or an array, by its bracket.
func (s *scanner) enter(bracket byte) {
	switch {
	case s.ignored == 0 && s.live < maxNames && s.length <= len(s.path) && bracket == '{':
		s.ends[s.live] = s.length
		s.live++
		s.wants = true
	case s.live > 0:
		s.ignored++
	}
}

// leave ends one.
func (s *scanner) leave() {
	switch {
	case s.ignored > 0:
		s.ignored--
	case s.live > 0:
		s.live--
		s.wants, s.length = false, s.ends[s.live]
	}
}
