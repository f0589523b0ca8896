package http1

import "io"

// An input is what has been read from a connection and not used up yet. The head
// that is in work stays where it is until the exchange ends, since strings point
// into it; what follows goes behind it, or into a larger buffer if there is much.
type input struct {
	from    io.Reader
	pool    *bufferPool
	headBuf []byte // where the head lies
	bodyBuf []byte // the larger buffer, nil if there is none
	buf     []byte // the one of both that is read into
	base    int    // bytes of buf that must stay
	r, w    int    // what is unread is buf[r:w]
}

// ensureBuffer lends in a buffer to begin with.
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

// fill reads more, at least one byte unless there is an error.
func (in *input) fill() error {
	if in.r == in.w {
		in.r, in.w = in.base, in.base
	}
	if in.w == len(in.buf) {
		return io.ErrShortBuffer // or reading would never bring anything
	}
	for {
		n, err := in.from.Read(in.buf[in.w:])
		in.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// growHead makes room for a head of which a part has been read, up to most bytes.
// Nothing may point into it yet.
func (in *input) growHead(most int) {
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	if in.w < len(in.buf) {
		return
	}
	larger := make([]byte, min(2*len(in.buf), max(most, len(in.buf))+headBufferSize))
	copy(larger, in.buf)
	in.pool.put(in.headBuf)
	in.headBuf, in.buf = larger, larger
}

// retainHead says that the first n unread bytes are the head that is in work.
func (in *input) retainHead(n int) {
	in.r += n
	in.base = in.r
}

// makeRoom makes room behind the unread bytes for reading a body of which so many
// bytes are still to come, or an unknown number if it is negative.
func (in *input) makeRoom(left int64) {
	if in.bodyBuf != nil {
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
		in.bodyBuf = make([]byte, 2*more) // behind a very long head
	}
	in.w = copy(in.bodyBuf, in.buf[in.r:in.w])
	in.buf, in.base, in.r = in.bodyBuf, 0, 0
}

// nextMessage ends the message that is in work: what is unread is the beginning of the
// next, and nothing may point into what was before.
func (in *input) nextMessage() {
	rest := in.unread()
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

// recycle is release for what is kept, empty, to be used again: it keeps one buffer.
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

// release gives all buffers back.
func (in *input) release() {
	if in.bodyBuf != nil {
		in.pool.put(in.bodyBuf)
	}
	if in.headBuf != nil {
		in.pool.put(in.headBuf)
	}
	*in = input{from: in.from, pool: in.pool}
}
