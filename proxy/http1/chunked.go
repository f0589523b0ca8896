package http1

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
	switch c.state {
	case inSize, afterSize, inExtension, inQuoted, inQuotedBy:
		if c.line++; c.line > l.ChunkLine {
			return ErrChunkLine
		}
		if c.state <= afterSize {
			return c.size(b, l)
		}
		return c.extension(b)
	case atSizeEnd:
		if b != '\n' {
			return ErrChunk
		}
		return c.beginChunk(l)
	case atDataCR:
		if b != '\r' {
			return ErrChunk
		}
		c.state = atDataLF
	case atDataLF:
		if b != '\n' {
			return ErrChunk
		}
		c.state, c.digits, c.line = inSize, 0, 0
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
		c.left = c.left<<4 | uint64(hexValue(b))
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
	if c.overhead > l.ChunkOverhead {
		return ErrChunkOverhead
	}
	c.state = inData
	return nil
}

func hexValue(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return lower(b) - 'a' + 10
}

const lastChunk = "0\r\n"

// appendChunk appends data as one chunk. Empty data appends nothing: a chunk of size 0
// would be the last one.
func appendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = appendHex(dst, uint64(len(data)))
	dst = append(dst, '\r', '\n')
	dst = append(dst, data...)
	return append(dst, '\r', '\n')
}

func appendHex(dst []byte, n uint64) []byte {
	shift := 60
	for shift > 0 && n>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[n>>shift&15])
	}
	return dst
}
