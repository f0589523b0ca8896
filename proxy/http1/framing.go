package http1

import (
	"slices"
	"strconv"
	"strings"
)

// A FramingKind is the way in which the end of a body is found (RFC 9112 section 6.3). Whatever two servers could
// read differently is refused, which prevents request smuggling.
type FramingKind uint8

// The kinds of framing.
const (
	NoBody      FramingKind = iota // the message has no body
	FixedLength                    // Content-Length
	Chunked                        // Transfer-Encoding: chunked
	UntilClose                     // the end of the connection; only for responses
)

// Framing describes how a body is delimited. Length is the number of bytes if Kind is
// FixedLength, and -1 if Kind is Chunked or UntilClose. If Kind is NoBody, it is the value
// of Content-Length of a response to HEAD or with status 304, and -1 otherwise. Both
// describe the body of another response.
type Framing struct {
	Kind   FramingKind
	Length int64
}

// A message contains what determines its framing.
type message struct {
	minor  int     // minor HTTP version of a received message; that of the recipient of one to be sent
	method string  // of the request, if this is a response
	status int     // of a response; 0 for a request
	fields *Fields // of a received message
}

// incomingFraming determines the framing of a received message (RFC 9112 section 6.3).
// It is the only place that does so, for requests and responses. Everything that two
// servers could interpret differently is an error. The method of a request has no
// influence.
func incomingFraming(m message) (Framing, error) {
	const framing = 1<<ContentLength | 1<<TransferEncoding
	if m.fields.present&framing == 0 {
		switch {
		case m.status == 0 || hasNoBody(m.method, m.status):
			return Framing{NoBody, -1}, nil
		default:
			return Framing{UntilClose, -1}, nil
		}
	}
	length, err := contentLength(m)
	if err != nil {
		return Framing{}, err
	}
	chunked, err := isChunked(m.fields, m.minor)
	switch {
	case err != nil:
		return Framing{}, err
	case chunked && length >= 0:
		return Framing{}, ErrLengthAndTransferCoding
	case m.status != 0 && hasNoBody(m.method, m.status):
		return Framing{NoBody, announcedLength(m.status, length)}, nil
	case chunked:
		return Framing{Chunked, -1}, nil
	case length == 0 && m.status == 0:
		return Framing{NoBody, 0}, nil
	}
	return Framing{FixedLength, length}, nil
}

// hasNoBody reports whether a response has no body, whatever its fields are.
func hasNoBody(method string, status int) bool {
	return status < 200 || status == 204 || status == 304 || method == "HEAD"
}

// announcedLength returns the Content-Length of a response without a body: length, except
// with a status with which it must not be present (RFC 9110 section 8.6).
func announcedLength(status int, length int64) int64 {
	if status < 200 || status == 204 {
		return -1
	}
	return length
}

// contentLength returns the value of Content-Length, or -1 if there is none. Several
// lines are an error, except in a response if their values are equal. A list is an error.
func contentLength(m message) (int64, error) {
	value, count := m.fields.firstOf(ContentLength)
	switch {
	case count == 0:
		return -1, nil
	case count > 1 && (m.status == 0 || slices.ContainsFunc(m.fields.Values("Content-Length"),
		func(other string) bool { return other != value })):
		return 0, ErrContentLengthRepeated
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || len(value) > 18 { // a digit less than 63 bits have
		return 0, ErrContentLength
	}
	return int64(n), nil
}

// isChunked reports whether the transfer coding is chunked. Any other coding and any
// list of codings is an error.
func isChunked(f *Fields, minor int) (bool, error) {
	value, count := f.firstOf(TransferEncoding)
	switch {
	case count == 0:
		return false, nil
	case minor == 0:
		return false, ErrTransferCodingHTTP10
	case count > 1 || !equalFoldLower(value, "chunked"):
		return false, ErrTransferCoding
	}
	return true, nil
}

// persists reports whether the sender of a message keeps the connection open after it
// (RFC 9112 section 9.3).
func persists(f *Fields, minor int) bool {
	return f.options&optionClose == 0 && (minor == 1 || f.options&optionKeepAlive != 0)
}

// outgoingFraming determines the framing of a message to be sent. It is the only place
// that does so. Only the length of the body matters, not the framing with which it was
// received.
func outgoingFraming(m message, body Framing) Framing {
	switch {
	case m.status != 0 && hasNoBody(m.method, m.status):
		return Framing{NoBody, announcedLength(m.status, body.Length)}
	case body.Kind == FixedLength, body.Kind == NoBody:
		return body
	case m.minor == 0:
		return Framing{UntilClose, -1}
	}
	return Framing{Chunked, -1}
}

// A chunkedReader finds the data in a chunked body. It can stop after any byte and
// continue later. Chunk extensions are dropped, so that a chunk line may have any form of
// which it is certain where it ends (RFC 9112 section 7.1): a CR, LF or NUL in it is an
// error, in quotes as well.
type chunkedReader struct {
	state    chunkState
	left     uint64 // bytes of data left in the current chunk
	digits   int    // digits of the chunk size so far
	line     int    // bytes of the chunk line so far
	overhead int    // bytes of chunk lines in excess of the data
}

type chunkState uint8

const (
	inSize    chunkState = iota
	afterSize            // in the blanks that follow the size
	inExtension
	inQuoted   // in a quoted string of an extension
	inQuotedBy // after a backslash in it
	atSizeEnd  // after the CR of a chunk line
	inData
	atDataCR
	atDataLF
	atTrailer // after the last chunk: the trailer section follows
)

const (
	maxChunkSize = 1 << 62 // in bytes, exclusive
	freeOverhead = 16      // bytes of each chunk line that do not count as overhead
)

// next parses b. The first skip bytes are framing, and the data bytes that follow them
// are body data; both are consumed. If data is 0, either b is used up or the state is
// atTrailer.
func (c *chunkedReader) next(b []byte, l *Limits) (skip, data int, err error) {
	for skip < len(b) && c.state != atTrailer {
		if c.state == inData {
			data = int(min(c.left, uint64(len(b)-skip)))
			if c.left -= uint64(data); c.left == 0 {
				c.state = atDataCR
			}
			return skip, data, nil
		}
		if err := c.step(b[skip], l); err != nil {
			return 0, 0, err
		}
		skip++
	}
	return skip, 0, nil
}

// step consumes one byte of framing.
func (c *chunkedReader) step(b byte, l *Limits) error {
	if c.state < atSizeEnd {
		c.line++
	}
	switch {
	case c.line > l.chunkLine:
		return ErrChunkLine
	case c.state <= afterSize:
		return c.size(b, l)
	case c.state <= inQuotedBy:
		return c.extension(b)
	case c.state == atSizeEnd && b == '\n':
		return c.beginChunk(l)
	case c.state == atDataCR && b == '\r':
		c.state = atDataLF
	case c.state == atDataLF && b == '\n':
		c.state, c.digits, c.line = inSize, 0, 0
	default:
		return ErrChunk
	}
	return nil
}

// size consumes a byte of the chunk size, or one between it and the extensions. An
// upstream may pad the size with blanks that no extension follows, as old servers do.
func (c *chunkedReader) size(b byte, l *Limits) error {
	switch {
	case c.state == inSize && isClass(b, hexChar):
		if c.left >= maxChunkSize>>4 {
			return ErrChunk
		}
		c.digits++
		c.left = c.left<<4 | uint64(strings.IndexByte("0123456789abcdef", lower(b)))
	case c.digits == 0:
		return ErrChunk
	case b == '\r' && (c.state == inSize || l.lenient):
		c.state = atSizeEnd
	case b == ';':
		c.state = inExtension
	case b == ' ', b == '\t':
		c.state = afterSize
	default:
		return ErrChunk
	}
	return nil
}

// extension consumes a byte of the extensions.
func (c *chunkedReader) extension(b byte) error {
	switch {
	case c.state == inExtension && b == '\r':
		c.state = atSizeEnd
	case b < ' ' && b != '\t', b == 0x7f, b > 0x7f && c.state == inExtension:
		return ErrChunk
	case c.state == inQuotedBy, c.state == inExtension && b == '"':
		c.state = inQuoted
	case c.state == inQuoted && b == '"':
		c.state = inExtension
	case c.state == inQuoted && b == '\\':
		c.state = inQuotedBy
	}
	return nil
}

// beginChunk is called at the end of a chunk line.
func (c *chunkedReader) beginChunk(l *Limits) error {
	if c.left == 0 {
		c.state = atTrailer
		return nil
	}
	c.overhead = max(c.overhead+c.line-freeOverhead-int(min(c.left, 1<<20)), 0)
	if c.overhead > l.chunkOverhead {
		return ErrChunkOverhead
	}
	c.state = inData
	return nil
}

const lastChunk = "0\r\n"

// appendChunk appends data as one chunk. Empty data appends nothing: a chunk of size 0
// would be the last one.
func appendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = strconv.AppendInt(dst, int64(len(data)), 16)
	dst = append(dst, '\r', '\n')
	dst = append(dst, data...)
	return append(dst, '\r', '\n')
}
