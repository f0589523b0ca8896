package http1

import (
	"errors"
	"io"
	"time"
)

// Errors of reading a body.
var (
	// ErrBodyTooLarge reports that a body is longer than Body.Limit allows.
	ErrBodyTooLarge = &Error{413, "body too large"}
	// ErrBodyReadCanceled reports that CancelBodyRead was called.
	ErrBodyReadCanceled = errors.New("body read canceled")
)

// A bodyFiller reads more of a body into its input, with a timeout.
type bodyFiller interface {
	fillBody(b *Body) error
}

// A flushWriter sends what is written to it, at the latest with Flush.
type flushWriter interface {
	io.Writer
	Flush() error
}

// A Body is the body of a request or a response. Only one goroutine may read it at a
// time. It must not be used after its exchange has ended.
type Body struct {
	trailer   Fields
	in        *input
	filler    bodyFiller
	limits    *Limits
	framing   Framing
	bytesLeft int64 // bytes not read yet, or -1 if the length is unknown
	chunks    chunkedReader
	parser    fieldParser
	skip      trailerSkipper
	maxBytes  int64         // 0 for no limit
	received  int64         // bytes read
	err       error         // why reading ended; io.EOF after the complete body
	flusher   flushWriter   // flushed before waiting for more bytes, unless nil
	direct    []byte        // the buffer of the reader, into which fill reads; nil to read into in
	waited    time.Duration // time spent waiting for the client
}

// open begins a body that begins with the unread bytes of in. b must have been reset.
func (b *Body) open(in *input, filler bodyFiller, f Framing, l *Limits) {
	b.in, b.filler, b.framing, b.limits, b.bytesLeft = in, filler, f, l, f.Length
	if f.Kind == NoBody || f.Kind == FixedLength && f.Length == 0 {
		b.bytesLeft, b.err = 0, io.EOF
	}
}

// Limit sets the maximum length of the body; 0 means no limit. Reading beyond it fails
// with ErrBodyTooLarge. If the length of the body is known and larger, reading fails
// immediately.
func (b *Body) Limit(maxBytes int64) { b.maxBytes = maxBytes }

// Length returns the length of the body, 0 if there is none, and -1 if it is unknown.
func (b *Body) Length() int64 {
	if b.framing.Kind == NoBody {
		return 0
	}
	return b.framing.Length
}

// Err returns why reading has ended: io.EOF if the body is complete, nil if it has not
// ended.
func (b *Body) Err() error { return b.err }

// Trailer returns the trailer fields. There are none before the body has been read to
// its end. Fields that are not allowed in a trailer section are dropped.
func (b *Body) Trailer() *Fields { return &b.trailer }

// Next returns the next bytes of the body. They are valid until the next method call.
// It returns io.EOF after the last byte, and never bytes together with an error.
func (b *Body) Next() ([]byte, error) {
	for b.err == nil {
		if data, err := b.nextBuffered(); len(data) > 0 || err != nil {
			return data, err
		}
		if err := b.filler.fillBody(b); err != nil {
			b.readFailed(err)
		}
	}
	return nil, b.err
}

// Read implements io.Reader. If the length of the body is known, it reads what has not
// arrived with the head straight into p: whoever collects a body holds it once, and p
// should have room for more than a few bytes. Otherwise it copies; Next does not.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.canReadDirectly() {
		return b.readDirectly(p)
	}
	data, err := b.Next()
	n := copy(p, data)
	if rest := len(data) - n; rest > 0 {
		b.unread(rest)
	} else if err == nil && b.done() {
		err = io.EOF // the caller need not call again to learn that the body has ended
	}
	return n, err
}

// canReadDirectly reports whether the next bytes of the connection belong to the body, and
// none have been read.
func (b *Body) canReadDirectly() bool {
	return b.err == nil && b.framing.Kind == FixedLength && b.bytesLeft > 0 && len(b.in.unread()) == 0 &&
		(b.maxBytes == 0 || b.framing.Length <= b.maxBytes)
}

func (b *Body) readDirectly(p []byte) (int, error) {
	b.direct = p[:min(int64(len(p)), b.bytesLeft)]
	err := b.filler.fillBody(b)
	n := len(b.direct)
	b.direct = nil
	if err != nil {
		b.readFailed(err)
		return 0, b.err
	}
	b.bytesLeft -= int64(n)
	b.received += int64(n)
	if b.done() {
		err = io.EOF
	}
	return n, err
}

// fill reads at least one byte.
func (b *Body) fill() error {
	if b.direct == nil {
		b.in.makeRoom(b.bytesLeft)
		return b.in.fill()
	}
	n, err := b.in.read(b.direct)
	b.direct = b.direct[:n]
	return err
}

// unread puts back the last n bytes that Next returned.
func (b *Body) unread(n int) {
	b.in.r -= n
	b.received -= int64(n)
	switch b.framing.Kind {
	case FixedLength:
		b.bytesLeft += int64(n)
		b.err = nil
	case Chunked:
		b.chunks.left += uint64(n)
		b.chunks.state = inData
	}
}

// nextBuffered is Next for bytes that are in the buffer. It returns neither bytes nor
// an error if more must be read.
func (b *Body) nextBuffered() ([]byte, error) {
	if b.err != nil {
		return nil, b.err
	}
	var data []byte
	data, b.err = b.consume()
	if len(data) > 0 && b.maxBytes > 0 && max(b.received+int64(len(data)), b.framing.Length) > b.maxBytes {
		data, b.err = nil, ErrBodyTooLarge
	}
	b.received += int64(len(data))
	return data, b.err
}

// consume consumes buffered bytes: either data, which it returns, or framing.
func (b *Body) consume() ([]byte, error) {
	buf := b.in.unread()
	switch b.framing.Kind {
	case FixedLength:
		n := int(min(int64(len(buf)), b.bytesLeft))
		if b.bytesLeft == 0 {
			return nil, io.EOF
		}
		b.bytesLeft -= int64(n)
		b.in.r += n
		return buf[:n], nil
	case UntilClose:
		b.in.r = b.in.w
		return buf, nil
	case Chunked:
		return b.consumeChunk(buf)
	}
	return nil, io.EOF
}

func (b *Body) consumeChunk(buf []byte) ([]byte, error) {
	if b.chunks.state != atTrailer {
		skip, n, err := b.chunks.next(buf, b.limits)
		if err != nil {
			return nil, err
		}
		b.in.r += skip + n
		if n > 0 || b.chunks.state != atTrailer {
			return buf[skip : skip+n], nil
		}
	}
	buf = b.in.unread()
	if b.skip.bytes > 0 {
		return nil, b.skipTrailer()
	}
	done, err := b.parser.parse(buf, &b.trailer, fieldLimits{maxTrailer, maxTrailerFields, b.limits.lenient})
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrTooManyFields):
		// The message is whole without them (RFC 9110 section 6.5.1).
		b.trailer.Reset()
		return nil, b.skipTrailer()
	case err != nil:
		return nil, ErrTrailer
	case !done:
		return nil, nil
	}
	b.in.r += b.parser.next
	b.trailer.DropForbiddenTrailers()
	return nil, io.EOF
}

// maxSkippedTrailer bounds a trailer section that is too large to be kept.
const maxSkippedTrailer = 1 << 20

// A trailerSkipper finds the end of a trailer section that is not kept.
type trailerSkipper struct {
	bytes int // skipped so far; 0 if the section is kept
	line  int // bytes of the current line
	cr    bool
}

// skipTrailer consumes what is buffered of a trailer section. It returns io.EOF at the
// end of the section.
func (b *Body) skipTrailer() error {
	for _, c := range b.in.unread() {
		b.in.r++
		b.skip.bytes++
		switch {
		case b.skip.bytes > maxSkippedTrailer, c == 0, (c == '\n') != b.skip.cr:
			return ErrTrailer
		case c == '\r':
			b.skip.cr = true
		case c == '\n' && b.skip.line == 0:
			return io.EOF
		case c == '\n':
			b.skip.line, b.skip.cr = 0, false
		default:
			b.skip.line++
		}
	}
	return nil
}

// readFailed records that the connection has ended or failed.
func (b *Body) readFailed(err error) {
	switch {
	case !errors.Is(err, io.EOF):
		b.err = err
	case b.framing.Kind == UntilClose:
		b.err = io.EOF
	default:
		b.err = ErrTruncated
	}
}

// done reports whether the body has been read to its end. It consumes the end of the
// framing if that is in the buffer.
func (b *Body) done() bool {
	if b.err == nil && b.framing.Kind == FixedLength && b.bytesLeft == 0 {
		b.err = io.EOF
	}
	if b.err == nil && b.framing.Kind == Chunked && b.chunks.state == atDataCR {
		b.peekEnd()
	}
	return b.err == io.EOF //nolint:errorlint // it is never wrapped, and done is called several times per exchange
}

// peekEnd consumes the end of a chunked body without trailer fields if it is in the
// buffer.
func (b *Body) peekEnd() {
	const end = "\r\n0\r\n\r\n"
	buf := b.in.unread()
	if len(buf) >= len(end) && string(buf[:len(end)]) == end {
		b.in.r += len(end)
		b.chunks.state, b.err = atTrailer, io.EOF
	}
}

// fillBody implements bodyFiller. It reads more of the request body. Timeouts.Body
// counts only time spent waiting for the client, so a slow upstream does not make the
// client time out. It does not apply after the response has started: client and
// upstream may then exchange data at any pace.
func (c *conn) fillBody(b *Body) error {
	if err := c.x.Continue(); err != nil {
		return err
	}
	began, err := c.beginBodyRead(b)
	if err != nil {
		return err
	}
	err = b.fill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyReading = false
	b.waited += c.server.now() - began
	if err != nil && c.bodyCanceled {
		return ErrBodyReadCanceled
	}
	return err
}

func (c *conn) beginBodyRead(b *Body) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bodyCanceled {
		return 0, ErrBodyReadCanceled
	}
	now := c.server.now()
	c.bodyReading = true
	wait := c.server.Timeouts.Body
	if c.bodyUnbounded || wait == 0 {
		c.clearReadDeadline()
		return now, nil
	}
	bonus := time.Duration(min(b.received, 1<<40)) * (time.Second / minBodyRate)
	c.setReadDeadline(now, max(min(wait, wait+bonus-b.waited), time.Nanosecond))
	return now, nil
}

// startResponse removes the timeout for the request body because the response has
// started.
func (c *conn) startResponse() {
	if c.x.Body() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyUnbounded = true
	if c.bodyReading && !c.bodyCanceled {
		c.clearReadDeadline()
	}
}

// CancelBodyRead makes a pending read of the request body return with
// ErrBodyReadCanceled, and all later ones. The connection is closed after this
// exchange, unless the whole body was read before. It is safe for concurrent use.
func (e *Exchange) CancelBodyRead() {
	c := e.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Body() == nil || c.bodyCanceled {
		return
	}
	c.bodyCanceled = true
	if c.bodyReading {
		c.interruptRead()
	}
}
