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
	state  []int64 // of a Cache; Reset keeps it
}

// Reset prepares b for another response.
func (b *Buffer) Reset() {
	clear(b.fields)
	b.fields, b.text, b.body = b.fields[:0], b.text[:0], b.body[:0]
}

// Discard is like Reset, but passes each buffer to a function and keeps what it
// returns.
func (b *Buffer) Discard(buffer func([]byte) []byte) {
	clear(b.fields)
	b.fields, b.text, b.body, b.state = b.fields[:0], buffer(b.text), buffer(b.body), b.state[:0]
}

// textFrom returns what was appended to b.text after its first n bytes.
func (b *Buffer) textFrom(n int) string {
	if n == len(b.text) {
		return ""
	}
	return unsafe.String(&b.text[n], len(b.text)-n)
}

// formatInt returns n in decimal.
func (b *Buffer) formatInt(n int64) string {
	from := len(b.text)
	b.text = appendInt(b.text, n)
	return b.textFrom(from)
}

// appendInt appends n in decimal. Most numbers of a response are small: seconds, permits and lengths.
func appendInt(b []byte, n int64) []byte {
	switch {
	case n < 0 || n >= 10_000:
		return strconv.AppendInt(b, n, 10)
	case n >= 1000: // a wait of up to some hours
		return append(b, '0'+byte(n/1000), '0'+byte(n/100%10), '0'+byte(n/10%10), '0'+byte(n%10))
	case n >= 100:
		return append(b, '0'+byte(n/100), '0'+byte(n/10%10), '0'+byte(n%10))
	case n >= 10:
		return append(b, '0'+byte(n/10), '0'+byte(n%10))
	}
	return append(b, '0'+byte(n))
}
