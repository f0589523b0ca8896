package http1

import (
	"iter"
	"strings"
	"unsafe"

	"github.com/weir-proxy/weir/limiter/reuse"
)

// A Field is one field line. Its strings refer to the buffer of a connection; see the
// package comment for their lifetime.
type Field struct {
	ID    Name
	Name  string // as spelled in the message
	Value string // without leading and trailing whitespace
}

// Fields are the field lines of a head or a trailer section, in their order. Each line
// is stored as offsets into the buffer that was parsed, or into a second buffer for
// lines that were added. A lookup scans these lines and allocates nothing. The zero
// value has no lines.
type Fields struct {
	buf          []byte // the buffer that was parsed
	added        []byte // the bytes of added lines
	lines        []fieldLine
	present      NameSet // the names of all lines, dropped or not
	options      byte    // the kinds of options in Connection, dropped or not
	unusualNames bool    // a name contains other characters than letters, digits and hyphens

	scratch []string // memory for Values
}

// A fieldLine is the position of a field in its buffer.
type fieldLine struct {
	name, nameEnd   uint32
	value, valueEnd uint32
	id              Name
	dropped         bool
	added           bool // in Fields.added
	generated       bool // in Fields.buf, in exactly the form in which Head writes it, CRLF included
}

// bufString returns buf[from:to] as a string that shares the memory of buf.
func bufString(buf []byte, from, to uint32) string {
	if from == to {
		return ""
	}
	return unsafe.String(&buf[from], int(to-from))
}

// bufferOf returns the buffer that contains l.
func (f *Fields) bufferOf(l *fieldLine) []byte {
	if l.added {
		return f.added
	}
	return f.buf
}

func (f *Fields) value(l *fieldLine) string { return bufString(f.bufferOf(l), l.value, l.valueEnd) }

func (f *Fields) field(l *fieldLine) Field {
	buf := f.bufferOf(l)
	return Field{l.id, bufString(buf, l.name, l.nameEnd), bufString(buf, l.value, l.valueEnd)}
}

// All iterates over the lines that have not been dropped.
func (f *Fields) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for i := range f.lines {
			if l := &f.lines[i]; !l.dropped && !yield(f.field(l)) {
				return
			}
		}
	}
}

// Has reports whether there is a line with the name n. n must not be Other.
func (f *Fields) Has(n Name) bool {
	_, count := f.firstOf(n)
	return count > 0
}

// MayHave reports whether there is a line with a name in set, or was before it was
// dropped. It costs less than Has.
func (f *Fields) MayHave(set NameSet) bool { return f.present&set != 0 }

// Value returns the value of the first line with the name n. n must not be Other.
func (f *Fields) Value(n Name) (value string, ok bool) {
	value, count := f.firstOf(n)
	return value, count > 0
}

// Lookup returns the value of the first line with this name, in any case.
func (f *Fields) Lookup(name string) (value string, ok bool) {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			return f.value(l), true
		}
	}
	return "", false
}

// HasUnusualNames reports whether any name contains other characters than letters,
// digits and hyphens. An underscore is one of them: CGI and WSGI do not distinguish it
// from a hyphen.
func (f *Fields) HasUnusualNames() bool { return f.unusualNames }

// Drop drops all lines with this name, in any case.
func (f *Fields) Drop(name string) {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			l.dropped = true
		}
	}
}

// DropKnown drops all lines with the name n. n must not be Other.
func (f *Fields) DropKnown(n Name) { f.DropSet(1 << n) }

// DropSet drops all lines whose names are in set, which must not contain Other.
func (f *Fields) DropSet(set NameSet) {
	if f.present&set == 0 {
		return
	}
	for i := range f.lines {
		if l := &f.lines[i]; l.id.in(set) {
			l.dropped = true
		}
	}
}

// DropFunc drops the lines for which drop returns true.
func (f *Fields) DropFunc(drop func(Field) bool) {
	for i := range f.lines {
		if l := &f.lines[i]; !l.dropped && drop(f.field(l)) {
			l.dropped = true
		}
	}
}

func (f *Fields) hasName(l *fieldLine, name string) bool {
	return int(l.nameEnd-l.name) == len(name) && !l.dropped && equalFold(f.bufferOf(l)[l.name:l.nameEnd], name)
}

// firstOf returns the first value of the name n and the number of its lines. n must not
// be Other.
func (f *Fields) firstOf(n Name) (value string, count int) {
	if !n.in(f.present) {
		return "", 0
	}
	for i := range f.lines {
		l := &f.lines[i]
		if l.id != n || l.dropped {
			continue
		}
		if count++; count == 1 {
			value = f.value(l)
		}
	}
	return value, count
}

// equalFold compares names of equal length, ignoring ASCII case.
func equalFold(a []byte, b string) bool {
	for i := range a {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// Values returns the values of all lines with this name, in any case. The slice is
// valid until the exchange ends.
func (f *Fields) Values(name string) []string {
	from := len(f.scratch)
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			f.scratch = append(f.scratch, f.value(l))
		}
	}
	return f.scratch[from:len(f.scratch):len(f.scratch)]
}

// Add adds a line. It copies name and value. They are validated when they are sent.
func (f *Fields) Add(name, value string) {
	n := LookupName(name)
	f.add(n, name, value)
	f.unusualNames = f.unusualNames || n == Other && UnusualName(name) // no well-known name is unusual
}

// add adds a line whose name, in any case, is that of n.
func (f *Fields) add(n Name, name, value string) {
	from := len(f.added)
	added := append(f.added, name...) // storing it once costs less
	colon := uint32(len(added))
	f.added = append(added, value...)
	f.lines = append(f.lines, fieldLine{
		name: uint32(from), nameEnd: colon, value: colon, valueEnd: uint32(len(f.added)), id: n, added: true,
	})
	f.present |= 1 << n
	if n == Connection {
		f.addOptions(value)
	}
}

// Set replaces all lines with this name, in any case, by one line.
func (f *Fields) Set(name, value string) {
	f.Drop(name)
	f.Add(name, value)
}

// SetKnown is Set for a well-known name.
func (f *Fields) SetKnown(n Name, value string) {
	f.DropKnown(n)
	f.add(n, n.String(), value)
}

// Del is the same as Drop. It has the name of http.Header.Del.
func (f *Fields) Del(name string) { f.Drop(name) }

// Reset removes all lines and keeps their memory. Strings that were looked up before
// are no longer valid.
func (f *Fields) Reset() {
	added, lines, scratch := reuse.Memory(f.added), reuse.Memory(f.lines), reuse.Memory(f.scratch)
	*f = Fields{} // in place: what was written by words and is copied by blocks waits for both
	f.added, f.lines, f.scratch = added, lines, scratch
}

// Clone returns a copy of f with memory of its own.
func (f *Fields) Clone() *Fields {
	c := new(Fields)
	for line := range f.All() {
		c.Add(line.Name, line.Value)
	}
	return c
}

// Errors in a request that was received over HTTP/2.
var (
	ErrPseudoField     = &Error{400, "pseudo-header fields not valid"}
	ErrConnectionField = &Error{400, "field of the connection in HTTP/2"}
	ErrProtocol        = &Error{501, "protocol of CONNECT not supported"}
)

// AddHTTP2 adds a line that was received over HTTP/2 (RFC 9113 section 8.2.1). It copies
// name and value, and stores the line in the form in which Head writes it in HTTP/1.1, so
// that forwarding it costs a copy. It returns ErrFieldName if the name is not a token in
// lower case, and ErrFieldValue if the value contains a control character or begins or
// ends with whitespace. f must contain no lines that were parsed.
func (f *Fields) AddHTTP2(name, value string) error {
	if name == "" || !allOf(name, tokenChar) || strings.ToLower(name) != name {
		return ErrFieldName
	}
	if v := bytesOf(value); valueLength(v) < len(v) || strings.Trim(value, " \t") != value {
		return ErrFieldValue
	}
	n := LookupName(name)
	from := uint32(len(f.buf))
	buf := f.buf
	if n != Other {
		buf = append(buf, n.String()...)
	} else {
		buf = appendCanonical(buf, name)
		f.unusualNames = f.unusualNames || UnusualName(name)
	}
	colon := uint32(len(buf))
	buf = append(buf, ": "...)
	at := uint32(len(buf))
	buf = append(buf, value...)
	f.lines = append(f.lines, fieldLine{
		name: from, nameEnd: colon, value: at, valueEnd: uint32(len(buf)), id: n, generated: true,
	})
	f.buf = append(buf, "\r\n"...)
	f.present |= 1 << n
	return nil
}

// Emptied returns fields without lines that reuse the memory of f, if f was filled by
// AddHTTP2: at most max bytes of it. f must not be used any more.
func (f *Fields) Emptied(max int) Fields {
	empty, buf := *f, reuse.Memory(f.buf)
	if empty.Reset(); cap(buf) <= max {
		empty.buf = buf
	}
	return empty
}

// AddedName returns the Name of the line that was added last.
func (f *Fields) AddedName() Name { return f.lines[len(f.lines)-1].id }

// ValidMethod reports whether s may be the method of a request.
func ValidMethod(s string) bool { return s != "" && len(s) <= maxMethod && allOf(s, tokenChar) }

// ValidTarget reports whether s consists of characters that are allowed in a request
// target.
func ValidTarget(s string) bool { return allOf(s, targetChar) }

// UnusualName reports whether a name contains other characters than letters, digits and
// hyphens.
func UnusualName(name string) bool { return !allOf(name, plainChar) }

// ValidName reports whether s may be the name of a field.
func ValidName(s string) bool { return s != "" && allOf(s, tokenChar) }

// ValidValue reports whether s may be a field value.
func ValidValue(s string) bool { return valueLength(bytesOf(s)) == len(s) }

// appendCanonical appends a name with its first letter, and each letter after a hyphen,
// in upper case, as in X-Request-Id.
func appendCanonical(buf []byte, name string) []byte {
	first := true
	for i := range len(name) {
		c := name[i]
		if first && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		buf, first = append(buf, c), c == '-'
	}
	return buf
}
