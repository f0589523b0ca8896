package http1

import (
	"iter"
	"unsafe"
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
func (f *Fields) Has(n Name) bool { return f.count(n) > 0 }

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

// AppendValues appends the values of all lines with this name, in any case, to dst.
func (f *Fields) AppendValues(dst []string, name string) []string {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			dst = append(dst, f.value(l))
		}
	}
	return dst
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
	if f.present&set != 0 {
		f.dropSet(set)
	}
}

// DropOther is like DropFunc, but leaves the lines with well-known names.
func (f *Fields) DropOther(drop func(Field) bool) {
	if !Other.in(f.present) {
		return
	}
	for i := range f.lines {
		if l := &f.lines[i]; l.id == Other && !l.dropped && drop(f.field(l)) {
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
	return int(l.nameEnd-l.name) == len(name) && !l.dropped && f.equalName(l, name)
}

func (f *Fields) equalName(l *fieldLine, name string) bool {
	return equalFold(f.bufferOf(l)[l.name:l.nameEnd], name)
}

func (f *Fields) dropSet(set NameSet) {
	for i := range f.lines {
		if l := &f.lines[i]; l.id.in(set) {
			l.dropped = true
		}
	}
}

// count returns the number of lines with the name n. n must not be Other.
func (f *Fields) count(n Name) int {
	_, count := f.firstOf(n)
	return count
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

// allEqual reports whether all lines of the name n have this value.
func (f *Fields) allEqual(n Name, value string) bool {
	for i := range f.lines {
		if l := &f.lines[i]; l.id == n && !l.dropped && f.value(l) != value {
			return false
		}
	}
	return true
}

// emptied returns fields without lines that reuse the memory of f, which must not be used
// any more.
func (f *Fields) emptied() Fields {
	return Fields{added: RecycleBuffer(f.added), lines: f.lines[:0], scratch: f.scratch[:0]}
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
	f.scratch = f.AppendValues(f.scratch, name)
	return f.scratch[from:len(f.scratch):len(f.scratch)]
}
