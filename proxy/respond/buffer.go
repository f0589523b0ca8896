package respond

import (
	"strconv"
	"unsafe"
)

// A Buffer is what a response is made in, so that making the next one costs no
// allocation. The zero Memory is ready. What was made in it is valid until Reset or
// Discard; whoever keeps some of it longer clones it.
type Buffer struct {
	fields []Field
	text   []byte // values of fields
	body   []byte
}

// Reset makes m ready for another response.
func (m *Buffer) Reset() {
	clear(m.fields)
	m.fields, m.text, m.body = m.fields[:0], m.text[:0], m.body[:0]
}

// Discard is like Reset, but passes each buffer to a function and keeps what it
// returns.
func (m *Buffer) Discard(buffer func([]byte) []byte) {
	clear(m.fields)
	m.fields, m.text, m.body = m.fields[:0], buffer(m.text), buffer(m.body)
}

// since returns what was appended to m.text after its first n bytes.
func (m *Buffer) since(n int) string {
	if n == len(m.text) {
		return ""
	}
	return unsafe.String(&m.text[n], len(m.text)-n)
}

// number returns n in decimal.
func (m *Buffer) number(n int64) string {
	from := len(m.text)
	m.text = strconv.AppendInt(m.text, n, 10)
	return m.since(from)
}
