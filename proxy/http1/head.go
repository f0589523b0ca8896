package http1

import (
	"strconv"
	"unsafe"
)

// A Head is one that is being written: the start line is there already, fields
// are added, and whoever sends it adds how the body is framed. Every byte of it
// is what is generated from values that are checked, also where a line is copied
// that was received in that very form.
type Head struct {
	buf     []byte
	err     error // the first field that cannot be sent
	hasDate bool  // it has Date
	hasHost bool  // it has Host, so that no other is added
}

// reset lends in a buffer and forgets what is in it.
func (h *Head) reset(m *bufferPool) {
	if h.buf == nil {
		h.buf = m.getHead()
	}
	*h = Head{buf: h.buf[:0]}
}

// recycle is release for what is kept, empty, to be used again: it keeps one buffer.
func (h *Head) recycle(m *bufferPool) {
	if poisoned || cap(h.buf) != headBufferSize {
		h.release(m)
		return
	}
	*h = Head{buf: h.buf[:0]}
}

func (h *Head) release(m *bufferPool) {
	if h.buf != nil {
		m.put(h.buf)
	}
	*h = Head{}
}

// AddKnown adds a field line whose name is known. It is Add without looking at the name,
// for names that may be added.
func (h *Head) AddKnown(n Name, value []byte) { h.addLine(n, n.String(), value) }

// Add adds a field line. A name that is no token, a value with a control
// character, and a name that concerns the connection or the framing make sending
// fail with ErrOutgoing.
func (h *Head) Add(name, value string) {
	h.addLine(nameOf(name), name, unsafe.Slice(unsafe.StringData(value), len(value)))
}

// addLine adds a field line whose name, which may have any case, is n.
func (h *Head) addLine(n Name, name string, value []byte) {
	switch {
	case n == Other && (len(name) == 0 || !allOf(name, tokenChar)), valueLength(value) < len(value),
		hopByHop&(1<<n) != 0 && n != ProxyAuthenticate && n != ProxyAuthorization, h.hasHost && n == Host:
		h.err = ErrOutgoing
		return
	}
	h.hasDate = h.hasDate || n == Date
	h.buf = append(h.buf, name...)
	h.buf = append(h.buf, ':', ' ')
	h.buf = append(h.buf, value...)
	h.buf = append(h.buf, '\r', '\n')
}

// AddFields adds the lines of f that have not been dropped. Those that were parsed
// were checked then; those that were added are checked as Add does. Hop-by-hop
// fields must have been taken out by Strip; any that is left makes sending fail. Lines
// that already stand one behind the other as they would be written, as most do, are
// copied together.
func (h *Head) AddFields(f *Fields) {
	var from, to uint32 // lines of f.buf that have not been copied yet
	for i := range f.lines {
		l := &f.lines[i]
		switch {
		case l.dropped || h.hasHost && l.id == Host:
			continue
		case l.added:
			h.buf = append(h.buf, f.buf[from:to]...)
			from, to = 0, 0
			h.addLine(l.id, bufString(f.added, l.name, l.nameEnd), f.added[l.value:l.valueEnd])
			continue
		case l.id != Other && hopByHop&(1<<l.id) != 0:
			h.err = ErrOutgoing
			return
		}
		h.hasDate = h.hasDate || l.id == Date
		if l.generated && l.name == to {
			to = l.valueEnd + 2
			continue
		}
		h.buf = append(h.buf, f.buf[from:to]...)
		if from, to = 0, 0; l.generated {
			from, to = l.name, l.valueEnd+2
			continue
		}
		h.buf = append(h.buf, f.buf[l.name:l.nameEnd]...)
		h.buf = append(h.buf, ':', ' ')
		h.buf = append(h.buf, f.buf[l.value:l.valueEnd]...)
		h.buf = append(h.buf, '\r', '\n')
	}
	h.buf = append(h.buf, f.buf[from:to]...)
}

// AddBlock adds lines that were rendered before, each ended by CRLF.
func (h *Head) AddBlock(b FieldBlock) { h.buf = append(h.buf, b.text...) }

func (h *Head) add(name, value string) {
	h.buf = append(h.buf, name...)
	h.buf = append(h.buf, ':', ' ')
	h.buf = append(h.buf, value...)
	h.buf = append(h.buf, '\r', '\n')
}

// addFraming adds what says how the body is framed.
func (h *Head) addFraming(f Framing) {
	switch {
	case f.Kind == Chunked:
		h.add("Transfer-Encoding", "chunked")
	case f.Kind != UntilClose && f.Length >= 0:
		h.buf = append(h.buf, "Content-Length: "...)
		h.buf = strconv.AppendInt(h.buf, f.Length, 10)
		h.buf = append(h.buf, '\r', '\n')
	}
}

func (h *Head) end() { h.buf = append(h.buf, '\r', '\n') }

// startRequest begins a head with a request line, whose target is the parts
// together.
func (h *Head) startRequest(method string, target ...string) {
	if len(method) == 0 || !allOf(method, tokenChar) {
		h.err = ErrOutgoing
		return
	}
	h.buf = append(h.buf, method...)
	h.buf = append(h.buf, ' ')
	from := len(h.buf)
	for _, part := range target {
		if part == "" {
			continue
		}
		if !allOf(part, targetChar) {
			h.err = ErrOutgoing
			return
		}
		h.buf = append(h.buf, part...)
	}
	if len(h.buf) == from {
		h.err = ErrOutgoing
		return
	}
	h.buf = append(h.buf, " HTTP/1.1\r\n"...)
}

// startResponse begins a head with a status line. The reason is always the usual
// one: what an upstream calls it is not sent on.
func (h *Head) startResponse(status int) {
	switch {
	case status == 200: // most are
		h.buf = append(h.buf, "HTTP/1.1 200 OK\r\n"...)
		return
	case status < 100 || status > 599:
		h.err = ErrOutgoing
		return
	}
	h.buf = append(h.buf, "HTTP/1.1 "...)
	h.buf = strconv.AppendInt(h.buf, int64(status), 10)
	h.buf = append(h.buf, ' ')
	h.buf = append(h.buf, reason(status)...)
	h.buf = append(h.buf, '\r', '\n')
}

// A FieldBlock is field lines that were checked and rendered once, to be added to many
// heads.
type FieldBlock struct{ text []byte }

// NewFieldBlock renders pairs of names and values. ErrOutgoing reports that one of
// them cannot be sent.
func NewFieldBlock(pairs ...string) (FieldBlock, error) {
	var h Head
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return FieldBlock{h.buf}, h.err
}
