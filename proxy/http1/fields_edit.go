package http1

// Add adds a line. It copies name and value. They are validated when they are sent.
func (f *Fields) Add(name, value string) {
	n := nameOf(name)
	f.add(n, name, value)
	f.unusualNames = f.unusualNames || n == Other && !allOf(name, plainChar) // no well-known name has unusual characters
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
func (f *Fields) Reset() { *f = f.emptied() }

// Grow allocates space for more lines with a total of so many bytes.
func (f *Fields) Grow(lines, bytes int) {
	f.lines = append(make([]fieldLine, 0, len(f.lines)+lines), f.lines...)
	f.added = append(make([]byte, 0, len(f.added)+bytes), f.added...)
}

// Clone returns a copy of f with memory of its own.
func (f *Fields) Clone() *Fields {
	c := new(Fields)
	for line := range f.All() {
		c.Add(line.Name, line.Value)
	}
	return c
}
