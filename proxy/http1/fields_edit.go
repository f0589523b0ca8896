package http1

// Add adds a line. Name and value are copied, and checked when they are sent.
func (f *Fields) Add(name, value string) {
	n := nameOf(name)
	f.add(n, name, value)
	f.unusualNames = f.unusualNames || n == Other && !allOf(name, plainChar) // no known name is
}

// add adds a line whose name, which may have any case, is n.
func (f *Fields) add(n Name, name, value string) {
	l := fieldLine{name: uint32(len(f.added)), id: n, added: true}
	f.added = append(f.added, name...)
	l.nameEnd = uint32(len(f.added))
	l.value = l.nameEnd
	f.added = append(f.added, value...)
	l.valueEnd = uint32(len(f.added))
	f.lines = append(f.lines, l)
	f.present |= 1 << l.id
}

// Set replaces all lines of that name, in any case, by one.
func (f *Fields) Set(name, value string) {
	f.Drop(name)
	f.Add(name, value)
}

// SetKnown is Set for a name that is known.
func (f *Fields) SetKnown(n Name, value string) {
	f.DropKnown(n)
	f.add(n, n.String(), value)
}

// Del is Drop, by the name that other headers have for it.
func (f *Fields) Del(name string) { f.Drop(name) }

// Reset takes out all lines and keeps their memory: strings that were looked up
// are no longer valid.
func (f *Fields) Reset() { f.reset() }

// Grow makes room for so many more lines, of so many bytes together.
func (f *Fields) Grow(lines, bytes int) {
	f.lines = append(make([]fieldLine, 0, len(f.lines)+lines), f.lines...)
	f.added = append(make([]byte, 0, len(f.added)+bytes), f.added...)
}

// Clone is a copy of f in memory of its own.
func (f *Fields) Clone() *Fields {
	c := new(Fields)
	for line := range f.All() {
		c.Add(line.Name, line.Value)
	}
	return c
}
