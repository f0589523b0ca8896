package http1

import "io"

// An input holds bytes that were read from a connection and not consumed yet. The head
// of the current message must stay in place until the exchange ends, because strings
// refer to it. Bytes after the head follow it in the same buffer, or in a larger one if
// there are many.
type input struct {
	from    io.Reader
	pool    *bufferPool
	headBuf []byte // holds the head
	bodyBuf []byte // the larger buffer, or nil
	buf     []byte // headBuf or bodyBuf: the one that is read into
	base    int    // the first bytes of buf, which must stay in place
	r, w    int    // buf[r:w] is unread

	discarding bool // the rest of the message is not used: it is read into the space of the head
}

// ensureBuffer gives in a buffer if it has none.
func (in *input) ensureBuffer() {
	if in.buf != nil {
		return
	}
	if in.headBuf == nil {
		in.headBuf = in.pool.getHead()
	}
	in.buf, in.base, in.r, in.w = in.headBuf, 0, 0, 0
}

func (in *input) unread() []byte { return in.buf[in.r:in.w] }

// fill reads more. It returns an error or has read at least one byte.
func (in *input) fill() error {
	if in.r == in.w {
		in.r, in.w = in.base, in.base
	}
	if in.w == len(in.buf) {
		return io.ErrShortBuffer // a read into an empty slice would never make progress
	}
	n, err := in.read(in.buf[in.w:])
	in.w += n
	return err
}

// read reads into p. It returns an error or has read at least one byte.
func (in *input) read(p []byte) (int, error) {
	for {
		n, err := in.from.Read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// growHead enlarges the buffer for an incomplete head, up to maxSize bytes. Nothing may
// refer to the buffer yet.
func (in *input) growHead(maxSize int) {
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	if in.w < len(in.buf) {
		return
	}
	larger := make([]byte, min(2*len(in.buf), max(maxSize, len(in.buf))+headBufferSize))
	copy(larger, in.buf)
	in.pool.put(in.headBuf)
	in.headBuf, in.buf = larger, larger
}

// retainHead marks the first n unread bytes as the head of the current message.
func (in *input) retainHead(n int) {
	in.r += n
	in.base = in.r
}

// makeRoom provides space after the unread bytes for reading a body of which left bytes
// are missing. left is negative if the number is unknown.
func (in *input) makeRoom(left int64) {
	if in.bodyBuf != nil || in.discarding {
		if in.w == len(in.buf) && in.r > in.base {
			in.w = in.base + copy(in.buf[in.base:], in.buf[in.r:in.w])
			in.r = in.base
		}
		return
	}
	if room := int64(len(in.buf) - in.base); left >= 0 && left <= room {
		if in.w == len(in.buf) {
			in.w = in.base + copy(in.buf[in.base:], in.buf[in.r:in.w])
			in.r = in.base
		}
		return
	}
	in.bodyBuf = in.pool.getBody()
	if more := in.w - in.r; more >= len(in.bodyBuf) {
		in.bodyBuf = make([]byte, 2*more) // the head was very long
	}
	in.w = copy(in.bodyBuf, in.buf[in.r:in.w])
	in.buf, in.base, in.r = in.bodyBuf, 0, 0
}

// nextMessage ends the current message. The unread bytes become the beginning of the
// next message. Nothing may refer to the bytes before them.
func (in *input) nextMessage() {
	rest := in.unread()
	in.discarding = false
	switch {
	case poisoned && len(rest) == 0:
		in.release()
		return
	case poisoned:
		moved := append(make([]byte, 0, max(headBufferSize, len(rest))), rest...)
		in.release()
		in.headBuf, in.buf, in.w = moved[:cap(moved)], moved[:cap(moved)], len(moved)
		return
	}
	if len(rest) == 0 && in.bodyBuf == nil {
		in.base, in.r, in.w = 0, 0, 0
		return
	}
	if len(rest) > len(in.headBuf) {
		in.pool.put(in.headBuf)
		in.headBuf = make([]byte, len(rest))
	}
	n := copy(in.headBuf, rest)
	if in.bodyBuf != nil {
		in.pool.put(in.bodyBuf)
		in.bodyBuf = nil
	}
	in.buf, in.base, in.r, in.w = in.headBuf, 0, 0, n
}

// discardRest prepares for reading the rest of the current message only to find its end.
// Nothing may refer to its head any more.
func (in *input) discardRest() {
	in.nextMessage()
	in.ensureBuffer()
	in.discarding = true
}

// recycle clears in for reuse. It keeps one buffer of the usual size.
func (in *input) recycle() {
	if poisoned || len(in.headBuf) != headBufferSize {
		in.release()
		return
	}
	if in.bodyBuf != nil {
		in.pool.put(in.bodyBuf)
	}
	*in = input{pool: in.pool, headBuf: in.headBuf}
}

// release returns all buffers to the pool.
func (in *input) release() {
	if in.bodyBuf != nil {
		in.pool.put(in.bodyBuf)
	}
	if in.headBuf != nil {
		in.pool.put(in.headBuf)
	}
	*in = input{from: in.from, pool: in.pool}
}
