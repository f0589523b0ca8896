package http1

import (
	"net/http"
	"strconv"
	"unsafe"

	"github.com/weir-proxy/weir/limiter/reuse"
)

// A Head is the head of a message that is being written. It has a start line, and
// fields can be added; the fields for the framing are added when it is sent. All of it
// is generated from validated values. A received line is copied only if it has exactly
// the generated form.
type Head struct {
	buf     []byte
	err     error // why the head cannot be sent
	hasDate bool  // Date was added
	hasHost bool  // Host was added, so no other one is
}

// reset clears h and gives it a buffer if it has none.
func (h *Head) reset(m *bufferPool) {
	if h.buf == nil {
		h.buf = m.getHead()
	}
	*h = Head{buf: h.buf[:0]}
}

// takeBuffer moves the buffer of other to h, unless h has one.
func (h *Head) takeBuffer(other *Head) {
	if h.buf == nil {
		h.buf, other.buf = other.buf[:0], nil
	}
}

// recycle clears h for reuse. It keeps one buffer of the usual size.
func (h *Head) recycle(m *bufferPool) {
	if reuse.Poisoned || cap(h.buf) != headBufferSize {
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

// AddKnown adds a field line with a well-known name, which must not be hop-by-hop. Only
// the value is validated.
func (h *Head) AddKnown(n Name, value []byte) {
	h.addLine(n, n.String(), bufString(value, 0, uint32(len(value))))
}

// AddKnownString is AddKnown for a string.
func (h *Head) AddKnownString(n Name, value string) { h.addLine(n, n.String(), value) }

// Add adds a field line. If the name is not a token, the value contains a control
// character, or the field is hop-by-hop or concerns the framing, the message cannot be
// sent: sending it returns ErrOutgoing.
func (h *Head) Add(name, value string) {
	h.addLine(LookupName(name), name, value)
}

// bytesOf returns the bytes of s, which must not be modified.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// addLine adds a field line whose name, in any case, is that of n.
func (h *Head) addLine(n Name, name, value string) {
	const special = hopByHop | 1<<Other | 1<<Host | 1<<Date
	if special&(1<<n) != 0 && !h.allows(n, name) || !ValidValue(value) {
		h.err = ErrOutgoing
		return
	}
	h.buf = appendLine(h.buf, name, value)
}

// allows reports whether a field that needs attention may be added.
func (h *Head) allows(n Name, name string) bool {
	switch n {
	case Other:
		return len(name) > 0 && allOf(name, tokenChar)
	case Host:
		return !h.hasHost
	case Date:
		h.hasDate = true
		return true
	case ProxyAuthenticate, ProxyAuthorization:
		return true
	}
	return false
}

// appendLine appends a field line to buf.
func appendLine(buf []byte, name, value string) []byte {
	buf = append(buf, name...)
	buf = append(buf, ": "...)
	buf = append(buf, value...)
	return append(buf, "\r\n"...)
}

// AddFields adds the lines of f that have not been dropped. Lines that were parsed are
// valid; added lines are validated like in Add. StripHopByHop must have been called on
// f before, otherwise sending returns ErrOutgoing. Consecutive lines that already have
// the form in which they would be written, as most have, are copied together.
func (h *Head) AddFields(f *Fields) {
	special := hopByHop | 1<<Date
	if h.hasHost {
		special |= 1 << Host
	}
	lines, buf := f.lines, f.buf
	var from, to uint32 // the range of buf that is to be copied
	for i := range lines {
		l := &lines[i]
		if l.dropped {
			continue
		}
		if special&(1<<l.id) != 0 {
			switch {
			case l.id == Host:
				continue
			case l.id == Date:
				h.hasDate = true
			case !l.added:
				h.err = ErrOutgoing
				return
			}
		}
		if l.generated && l.name == to {
			to = l.valueEnd + 2
			continue
		}
		if from < to {
			h.buf = append(h.buf, buf[from:to]...)
		}
		from, to = 0, 0
		switch {
		case l.generated:
			from, to = l.name, l.valueEnd+2
		case l.added:
			h.addLine(l.id, bufString(f.added, l.name, l.nameEnd), f.value(l))
		default:
			h.buf = appendLine(h.buf, bufString(buf, l.name, l.nameEnd), bufString(buf, l.value, l.valueEnd))
		}
	}
	h.buf = append(h.buf, buf[from:to]...)
}

// AddBlock adds the lines of b.
func (h *Head) AddBlock(b FieldBlock) { h.buf = append(h.buf, b.text...) }

func (h *Head) add(name, value string) { h.buf = appendLine(h.buf, name, value) }

// addFraming adds the field that describes the framing.
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

// startRequest writes a request line. The target is the concatenation of its parts.
func (h *Head) startRequest(method string, target ...string) {
	if len(method) == 0 || !allOf(method, tokenChar) {
		h.err = ErrOutgoing
		return
	}
	buf := append(h.buf, method...)
	buf = append(buf, ' ')
	from := len(buf)
	for _, part := range target {
		if part == "" {
			continue
		}
		if !allOf(part, targetChar) {
			h.err = ErrOutgoing
			return
		}
		buf = append(buf, part...)
	}
	if len(buf) == from {
		h.err = ErrOutgoing
		return
	}
	h.buf = append(buf, " HTTP/1.1\r\n"...)
}

// startResponse writes a status line with the registered reason phrase. The reason
// phrase of an upstream is not forwarded.
func (h *Head) startResponse(status int) {
	if status < 100 || status > 999 {
		h.err = ErrOutgoing
		return
	}
	h.buf = append(h.buf, "HTTP/1.1 "...)
	h.buf = strconv.AppendInt(h.buf, int64(status), 10)
	h.buf = append(h.buf, ' ')
	h.buf = append(h.buf, http.StatusText(status)...)
	h.buf = append(h.buf, '\r', '\n')
}

// A FieldBlock contains field lines that were validated and rendered once, in order to
// be added to many heads.
type FieldBlock struct{ text []byte }

// NewFieldBlock renders pairs of names and values. It returns ErrOutgoing if one of
// them cannot be sent.
func NewFieldBlock(pairs ...string) (FieldBlock, error) {
	var h Head
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return FieldBlock{h.buf}, h.err
}
