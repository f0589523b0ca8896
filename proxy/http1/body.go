package http1

import (
	"errors"
	"io"
	"time"
)

// Errors of reading a body.
var (
	// ErrBodyTooLarge reports that a body is longer than its reader allows.
	ErrBodyTooLarge = &Error{413, "body too large"}
	// ErrBodyReadCanceled reports that the exchange wants no more of a body.
	ErrBodyReadCanceled = errors.New("body no longer wanted")
)

// A bodyFiller brings more of a body, within the time for it.
type bodyFiller interface {
	fillBody(b *Body) error
}

// A flusher sends what was written to it.
type flusher interface {
	Flush() error
}

// A Body is that of a request or a response. It is read by one goroutine at a
// time, and no longer than its exchange lasts.
type Body struct {
	trailer Fields
	bodyState
}

// A bodyState is a Body but for what is kept for the next one.
type bodyState struct {
	in        *input
	filler    bodyFiller
	limits    *Limits
	framing   Framing
	bytesLeft int64 // of a body with a length
	chunks    chunkedReader
	parser    fieldParser
	maxBytes  int64         // bytes; 0 for any number
	received  int64         // bytes
	err       error         // how reading ended; io.EOF is its good end
	flusher   flusher       // what was written to it is flushed before waiting for more; nil for nothing
	waited    time.Duration // for the client
}

// open makes b ready for a body that begins with what in has unread.
func (b *Body) open(in *input, from bodyFiller, f Framing, l *Limits) {
	b.reset()
	b.in, b.filler, b.framing, b.limits, b.bytesLeft = in, from, f, l, f.Length
	if f.Kind == NoBody || f.Kind == FixedLength && f.Length == 0 {
		b.bytesLeft, b.err = 0, io.EOF
	}
}

func (b *Body) reset() {
	b.trailer.reset()
	b.bodyState = bodyState{}
}

// Limit makes reading fail with ErrBodyTooLarge after so many bytes; 0 is any
// number. A body whose length is known fails at once.
func (b *Body) Limit(most int64) { b.maxBytes = most }

// Length is the length of the body as announced, 0 for none and -1 for unknown.
func (b *Body) Length() int64 {
	switch b.framing.Kind {
	case NoBody:
		return 0
	case FixedLength:
		return b.framing.Length
	}
	return -1
}

// Received is how many bytes of it have been read.
func (b *Body) Received() int64 { return b.received }

// Err is how reading ended: io.EOF if the body is whole, nil if it has not.
func (b *Body) Err() error { return b.err }

// Trailer are the trailer fields. There are none before reading has ended, and
// those that must not stand there are left out.
func (b *Body) Trailer() *Fields { return &b.trailer }

// Next returns the next bytes, which stay as they are until it is called again.
// The error is io.EOF when the body is whole, and no bytes come with any.
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

// Read is Next for those who bring a buffer.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	data, err := b.Next()
	n := copy(p, data)
	if rest := len(data) - n; rest > 0 {
		b.unread(rest)
	} else if err == nil && b.done() {
		err = io.EOF // so that nobody needs room to learn that there is no more
	}
	return n, err
}

// unread gives the last n bytes of what Next returned back.
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

// count notes what is handed out, and cuts it at the limit.
func (b *Body) count(data []byte) ([]byte, error) {
	if b.maxBytes > 0 && (b.received+int64(len(data)) > b.maxBytes || b.framing.Length > b.maxBytes) {
		b.err = ErrBodyTooLarge
		return nil, b.err
	}
	b.received += int64(len(data))
	return data, nil
}

// nextBuffered is Next for what is at hand: no bytes and no error mean that more has to
// be read.
func (b *Body) nextBuffered() ([]byte, error) {
	if b.err != nil {
		return nil, b.err
	}
	data, err := b.consume()
	if err != nil {
		b.err = err
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	return b.count(data)
}

// consume uses up what is unread: data, or framing until more is needed.
func (b *Body) consume() ([]byte, error) {
	have := b.in.unread()
	switch b.framing.Kind {
	case FixedLength:
		n := int(min(int64(len(have)), b.bytesLeft))
		if b.bytesLeft == 0 {
			return nil, io.EOF
		}
		b.bytesLeft -= int64(n)
		b.in.r += n
		return have[:n], nil
	case UntilClose:
		b.in.r = b.in.w
		return have, nil
	case Chunked:
		return b.consumeChunk(have)
	}
	return nil, io.EOF
}

func (b *Body) consumeChunk(have []byte) ([]byte, error) {
	if b.chunks.state != atTrailer {
		skip, n, err := b.chunks.next(have, b.limits)
		if err != nil {
			return nil, err
		}
		b.in.r += skip + n
		if n > 0 || b.chunks.state != atTrailer {
			return have[skip : skip+n], nil
		}
	}
	have = b.in.unread()
	done, err := b.parser.parse(have, &b.trailer, fieldLimits{b.limits.Trailer, b.limits.TrailerFields})
	if err != nil {
		return nil, ErrTrailer
	}
	if !done {
		return nil, nil
	}
	b.in.r += b.parser.next
	b.trailer.DropForbiddenTrailers()
	return nil, io.EOF
}

// readFailed notes that no more comes.
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

// done reports whether the body has been read to its end, taking into account
// what can be told without waiting.
func (b *Body) done() bool {
	if b.err == nil && b.framing.Kind == FixedLength && b.bytesLeft == 0 {
		b.err = io.EOF
	}
	if b.err == nil && b.framing.Kind == Chunked && b.chunks.state == atDataCR {
		b.peekEnd()
	}
	return b.err == io.EOF //nolint:errorlint // nobody wraps it here, and this is asked several times an exchange
}

// peekEnd uses up the end of a chunked body if it is at hand.
func (b *Body) peekEnd() {
	const end = "\r\n0\r\n\r\n"
	have := b.in.unread()
	if len(have) >= len(end) && string(have[:len(end)]) == end {
		b.in.r += len(end)
		b.chunks.state, b.err = atTrailer, io.EOF
	}
}
