package http1

import "bytes"

// A fieldParser parses field lines up to the empty line that ends them: those of a
// head, or of a trailer section. It can be called again with more of the same
// bytes; lines that are whole are not parsed twice.
type fieldParser struct {
	next    int // where the first line begins that has not been parsed
	scanned int // there is no line feed from next up to here
}

// fieldLimits bound the size of a section.
type fieldLimits struct {
	bytes, lines int
}

// parse parses the lines of buf into f. done is true if the section has ended, at
// s.next. Otherwise parse must be called again with more bytes.
func (s *fieldParser) parse(buf []byte, f *Fields, limits fieldLimits) (done bool, err error) {
	f.buf = buf
	if s.lineIncomplete(buf) {
		return false, s.checkSize(len(buf), limits)
	}
	for {
		n, err := s.line(buf[s.next:], f, limits)
		if err != nil {
			return false, err
		}
		if n == 0 {
			s.scanned = len(buf)
			return false, s.checkSize(len(buf), limits)
		}
		s.next += n
		if s.next > limits.bytes {
			return false, ErrTooLarge
		}
		if n == len("\r\n") {
			return true, nil
		}
	}
}

// lineIncomplete reports whether the line that was incomplete at the last call is still
// incomplete. That is cheaper than parsing it again.
func (s *fieldParser) lineIncomplete(buf []byte) bool {
	if s.scanned <= s.next || bytes.IndexByte(buf[s.scanned:], '\n') >= 0 {
		return false
	}
	s.scanned = len(buf)
	return true
}

// checkSize returns ErrTooLarge if the section has become too long.
func (s *fieldParser) checkSize(length int, limits fieldLimits) error {
	if length > limits.bytes {
		return ErrTooLarge
	}
	return nil
}

// line parses one line and returns its length, or 0 if it is incomplete.
func (s *fieldParser) line(b []byte, f *Fields, limits fieldLimits) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	switch b[0] {
	case '\r':
		return lineEnd(b, 0)
	case ' ', '\t':
		return 0, ErrFoldedLine
	}
	id, name := knownName(b)
	common := byte(plainChar)
	if id == Other {
		for name = 0; name < len(b) && classes[b[name]]&tokenChar != 0; name++ {
			common &= classes[b[name]]
		}
		if name == len(b) {
			return 0, nil
		}
		if b[name] != ':' || name == 0 {
			return 0, ErrFieldName
		}
		id = nameOf(b[:name]) // Other, unless knownName has stopped because the buffer ends
	}
	value := name + 1
	for value < len(b) && (b[value] == ' ' || b[value] == '\t') {
		value++
	}
	end := value + valueLength(b[value:])
	if end == len(b) {
		return 0, nil
	}
	n, err := lineEnd(b, end)
	if n == 0 || err != nil {
		return 0, err
	}
	generated := value == name+2 && b[name+1] == ' '
	for end > value && (b[end-1] == ' ' || b[end-1] == '\t') {
		end--
		generated = false
	}
	if len(f.lines) >= limits.lines {
		return 0, ErrTooManyFields
	}
	if s.next+n > limits.bytes { // checked here because offsets have 32 bits
		return 0, ErrTooLarge
	}
	at := uint32(s.next)
	f.lines = append(f.lines, fieldLine{
		name: at, nameEnd: at + uint32(name), value: at + uint32(value), valueEnd: at + uint32(end), id: id, generated: generated,
	})
	f.present |= 1 << id
	f.unusualNames = f.unusualNames || common == 0
	return n, nil
}

// lineEnd checks that a line ends at b[end] and returns its length, or 0 if the CRLF is
// incomplete.
func lineEnd(b []byte, end int) (int, error) {
	switch {
	case b[end] == '\n':
		return 0, ErrLineEnd
	case b[end] != '\r':
		return 0, ErrFieldValue
	case end+1 == len(b):
		return 0, nil
	case b[end+1] != '\n':
		return 0, ErrLineEnd
	}
	return end + 2, nil
}
