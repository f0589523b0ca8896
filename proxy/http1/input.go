package http1

import (
	"io"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

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

// ensureBuffer gives i a buffer if it has none.
func (i *input) ensureBuffer() {
	if i.buf != nil {
		return
	}
	if i.headBuf == nil {
		i.headBuf = i.pool.getHead()
	}
	i.buf, i.base, i.r, i.w = i.headBuf, 0, 0, 0
}

func (i *input) unread() []byte { return i.buf[i.r:i.w] }

// fill reads more. It returns an error or has read at least one byte.
func (i *input) fill() error {
	if i.r == i.w {
		i.r, i.w = i.base, i.base
	}
	if i.w == len(i.buf) {
		return io.ErrShortBuffer // a read into an empty slice would never make progress
	}
	n, err := i.read(i.buf[i.w:])
	i.w += n
	return err
}

// read reads into p. It returns an error or has read at least one byte.
func (i *input) read(p []byte) (int, error) {
	for {
		n, err := i.from.Read(p)
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
func (i *input) growHead(maxSize int) {
	if i.r > 0 {
		i.w = copy(i.buf, i.buf[i.r:i.w])
		i.r = 0
	}
	if i.w < len(i.buf) {
		return
	}
	larger := make([]byte, min(2*len(i.buf), max(maxSize, len(i.buf))+headBufferSize))
	copy(larger, i.buf)
	i.pool.put(i.headBuf)
	i.headBuf, i.buf = larger, larger
}

// retainHead marks the first n unread bytes as the head of the current message.
func (i *input) retainHead(n int) {
	i.r += n
	i.base = i.r
}

// makeRoom provides space after the unread bytes for reading a body of which left bytes
// are missing. left is negative if the number is unknown.
func (i *input) makeRoom(left int64) {
	if room := int64(len(i.buf) - i.base); i.bodyBuf != nil || i.discarding || left >= 0 && left <= room {
		if i.w == len(i.buf) && i.r > i.base {
			i.w = i.base + copy(i.buf[i.base:], i.buf[i.r:i.w])
			i.r = i.base
		}
		return
	}
	i.bodyBuf = i.pool.getBody()
	if more := i.w - i.r; more >= len(i.bodyBuf) {
		i.bodyBuf = make([]byte, 2*more) // the head was very long
	}
	i.w = copy(i.bodyBuf, i.buf[i.r:i.w])
	i.buf, i.base, i.r = i.bodyBuf, 0, 0
}

// nextMessage ends the current message. The unread bytes become the beginning of the
// next message. Nothing may refer to the bytes before them.
func (i *input) nextMessage() {
	rest := i.unread()
	i.discarding = false
	switch {
	case reuse.Poisoned && len(rest) == 0:
		i.release()
		return
	case reuse.Poisoned:
		moved := append(make([]byte, 0, max(headBufferSize, len(rest))), rest...)
		i.release()
		i.headBuf, i.buf, i.w = moved[:cap(moved)], moved[:cap(moved)], len(moved)
		return
	}
	if len(rest) == 0 && i.bodyBuf == nil {
		i.base, i.r, i.w = 0, 0, 0
		return
	}
	if len(rest) > len(i.headBuf) {
		i.pool.put(i.headBuf)
		i.headBuf = make([]byte, len(rest))
	}
	n := copy(i.headBuf, rest)
	if i.bodyBuf != nil {
		i.pool.put(i.bodyBuf)
		i.bodyBuf = nil
	}
	i.buf, i.base, i.r, i.w = i.headBuf, 0, 0, n
}

// discardRest prepares for reading the rest of the current message only to find its end.
// Nothing may refer to its head any more.
func (i *input) discardRest() {
	i.nextMessage()
	i.ensureBuffer()
	i.discarding = true
}

// recycle clears i for reuse on another connection. It keeps one buffer of the usual size.
func (i *input) recycle() {
	kept := i.headBuf
	if reuse.Poisoned || len(kept) != headBufferSize {
		kept = nil
	} else {
		i.headBuf = nil
	}
	i.release()
	*i = input{headBuf: kept}
}

// release returns all buffers to the pool.
func (i *input) release() {
	if i.bodyBuf != nil {
		i.pool.put(i.bodyBuf)
	}
	if i.headBuf != nil {
		i.pool.put(i.headBuf)
	}
	*i = input{from: i.from, pool: i.pool}
}

// An idleRead checks an idle connection whose socket cannot be polled: on a system
// without poll(2), such as Windows, and if there is no socket. A read is pending while
// the connection is idle. It returns if the upstream closes the connection or sends
// unexpected bytes; otherwise a deadline ends it when the connection is needed again. A
// read that begins after its deadline would not look at the socket. This costs a
// goroutine per idle connection.
type idleRead chan error // receives the result of the read

// beginIdleRead begins the read, unless the socket of u can be polled. It reports
// whether u can be kept.
func (u *clientConn) beginIdleRead() bool {
	if u.socket.Raw != nil {
		return true
	}
	if u.idleRead == nil {
		u.idleRead = make(idleRead, 1)
	}
	u.readDeadline.at = 0
	if u.net.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	go func() {
		_, err := u.net.Read(u.oneByte[:])
		u.idleRead <- err
	}()
	return true
}

// endIdleRead ends the read and returns the state of the upstream's end of the
// connection.
func (u *clientConn) endIdleRead() socket.State {
	interrupted := u.net.SetReadDeadline(pastTime()) // if it fails, the connection is closed
	switch err := <-u.idleRead; {
	case err == nil:
		return socket.Readable
	case !timedOut(err), interrupted != nil, u.net.SetReadDeadline(time.Time{}) != nil:
		return socket.Reset
	}
	return socket.Open
}
