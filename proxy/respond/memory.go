package respond

import (
	"strconv"
	"unsafe"
)

// A Memory is what a response is made in, so that making the next one costs no
// allocation. The zero Memory is ready. What was made in it is valid until Reset or
// Discard; whoever keeps some of it longer clones it.
type Memory struct {
	fields []Field
	text   []byte // values of fields
	body   []byte
}

// Reset makes m ready for another response.
func (m *Memory) Reset() {
	clear(m.fields)
	m.fields, m.text, m.body = m.fields[:0], m.text[:0], m.body[:0]
}

// Discard is like Reset, but passes each buffer to a function and keeps what it
// returns.
func (m *Memory) Discard(buffer func([]byte) []byte) {
	clear(m.fields)
	m.fields, m.text, m.body = m.fields[:0], buffer(m.text), buffer(m.body)
}

// since returns what was appended to m.text after its first n bytes.
func (m *Memory) since(n int) string {
	if n == len(m.text) {
		return ""
	}
	return unsafe.String(&m.text[n], len(m.text)-n)
}

// number returns n in decimal.
func (m *Memory) number(n int64) string {
	from := len(m.text)
	m.text = strconv.AppendInt(m.text, n, 10)
	return m.since(from)
}
