package respond

import (
	"strconv"
	"unsafe"
)

// A Buffer holds the memory of a response, so that further responses cost no allocation. The zero
// value is ready to use. A response is valid until Reset or Discard is called; callers that keep
// parts of it longer must clone them.
type Buffer struct {
	fields []Field
	text   []byte // values of fields
	body   []byte
}

// Reset prepares m for another response.
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

// textFrom returns what was appended to m.text after its first n bytes.
func (m *Buffer) textFrom(n int) string {
	if n == len(m.text) {
		return ""
	}
	return unsafe.String(&m.text[n], len(m.text)-n)
}

// formatInt returns n in decimal.
func (m *Buffer) formatInt(n int64) string {
	from := len(m.text)
	m.text = appendInt(m.text, n)
	return m.textFrom(from)
}

// appendInt appends n in decimal. Most numbers of a response are small: seconds, permits and lengths.
func appendInt(b []byte, n int64) []byte {
	switch {
	case n < 0 || n >= 1000:
		return strconv.AppendInt(b, n, 10)
	case n >= 100:
		return append(b, '0'+byte(n/100), '0'+byte(n/10%10), '0'+byte(n%10))
	case n >= 10:
		return append(b, '0'+byte(n/10), '0'+byte(n%10))
	}
	return append(b, '0'+byte(n))
}
