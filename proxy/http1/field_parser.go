package http1

import "bytes"

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
