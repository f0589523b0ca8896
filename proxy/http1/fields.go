package http1

import (
	"iter"
	"unsafe"
)

// A Field is one field line. Its strings point into the buffer of a connection;
// see the package comment on how long they live.
type Field struct {
	ID    Name
	Name  string // as it was spelled
	Value string // without whitespace around it
}

// Fields are the field lines of one head or trailer section, in their order.
// They are offsets into the buffer that was parsed, or into memory of their own for
// lines that were added: looking something up costs a walk over a few dozen numbers
// and no memory. The zero Fields have no lines.
type Fields struct {
	buf          []byte // that was parsed
	added        []byte // lines that were added
	lines        []fieldLine
	present      uint64 // a bit for each Name that is there or was
	unusualNames bool   // some name has more than letters, digits and hyphens

	scratch []string // for Values
}

// A fieldLine says where a field lies in the buffer.
type fieldLine struct {
	name, nameEnd   uint32
	value, valueEnd uint32
	id              Name
	dropped         bool
	added           bool // it lies in Fields.added
	generated       bool // it lies in Fields.buf, up to its CRLF, as it would be written
}

// bufString is buf[from:to] as a string that shares its memory.
func bufString(buf []byte, from, to uint32) string {
	if from == to {
		return ""
	}
	return unsafe.String(&buf[from], int(to-from))
}

// bufferOf is where l lies.
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

// All are the lines that have not been dropped.
func (f *Fields) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for i := range f.lines {
			if l := &f.lines[i]; !l.dropped && !yield(f.field(l)) {
				return
			}
		}
	}
}

// Has reports whether there is a line of that name. n must be a known name.
func (f *Fields) Has(n Name) bool {
	_, ok := f.Value(n)
	return ok
}

// Value is the value of the first line of that name. n must be a known name.
func (f *Fields) Value(n Name) (value string, ok bool) {
	if f.present&(1<<n) == 0 {
		return "", false
	}
	for i := range f.lines {
		if l := &f.lines[i]; l.id == n && !l.dropped {
			return f.value(l), true
		}
	}
	return "", false
}

// Lookup is the value of the first line whose name is this one in any case.
func (f *Fields) Lookup(name string) (value string, ok bool) {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			return f.value(l), true
		}
	}
	return "", false
}

// AppendValues appends to dst the values of all lines whose name is this one in
// any case.
func (f *Fields) AppendValues(dst []string, name string) []string {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			dst = append(dst, f.value(l))
		}
	}
	return dst
}

// HasUnusualNames reports whether some name has more than letters, digits and hyphens: an
// underscore, which CGI and WSGI do not tell from a hyphen, or worse.
func (f *Fields) HasUnusualNames() bool { return f.unusualNames }

// Drop takes out all lines whose name is this one in any case.
func (f *Fields) Drop(name string) {
	for i := range f.lines {
		if l := &f.lines[i]; f.hasName(l, name) {
			l.dropped = true
		}
	}
}

// DropConfusable is Drop for lines whose name differs from this one only in case and
// in underscores for hyphens.
func (f *Fields) DropConfusable(name string) {
	if !f.unusualNames {
		f.Drop(name)
		return
	}
	for i := range f.lines {
		if l := &f.lines[i]; equalFoldUnderscore(f.bufferOf(l)[l.name:l.nameEnd], name) {
			l.dropped = true
		}
	}
}

// DropKnown takes out all lines of that known name.
func (f *Fields) DropKnown(n Name) { f.dropSet(1 << n) }

// DropFunc takes out the lines for which drop is true.
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

// dropSet takes out the lines whose names have their bit in set.
func (f *Fields) dropSet(set uint64) {
	if f.present&set == 0 {
		return
	}
	for i := range f.lines {
		if l := &f.lines[i]; l.id != Other && set&(1<<l.id) != 0 {
			l.dropped = true
		}
	}
}

// count is how many lines of that known name there are.
func (f *Fields) count(n Name) (count int) {
	if f.present&(1<<n) == 0 {
		return 0
	}
	for i := range f.lines {
		if l := &f.lines[i]; l.id == n && !l.dropped {
			count++
		}
	}
	return count
}

// reset forgets all lines and keeps the memory for them.
func (f *Fields) reset() {
	f.buf, f.added, f.lines, f.present, f.unusualNames, f.scratch = nil, f.added[:0], f.lines[:0], 0, false, f.scratch[:0]
}

// equalFold compares names in any case.
func equalFold(a []byte, b string) bool {
	for i := range a {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// equalFoldUnderscore compares names in any case that may have underscores for hyphens.
func equalFoldUnderscore(a []byte, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if hyphen(lower(a[i])) != hyphen(lower(b[i])) {
			return false
		}
	}
	return true
}

func hyphen(c byte) byte {
	if c == '_' {
		return '-'
	}
	return c
}

// Values are the values of all lines whose name is this one in any case. It lends
// memory until the exchange ends.
func (f *Fields) Values(name string) []string {
	from := len(f.scratch)
	f.scratch = f.AppendValues(f.scratch, name)
	return f.scratch[from:len(f.scratch):len(f.scratch)]
}
