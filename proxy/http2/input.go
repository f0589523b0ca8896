package http2

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// inputSize is the size of the buffer of a connection that is in use. It holds many small
// frames, so that the requests of several streams are read at once.
const inputSize = 16 << 10

// An input reads from a connection. While it waits, it holds no buffer. Only the goroutine that reads the connection uses it.
type input struct {
	c       *conn
	buf     *[inputSize]byte // nil if there are no unread bytes
	r, w    int              // the unread bytes are buf[r:w]
	oneByte [1]byte
	more    bool            // only the byte that was read without a buffer has been read
	raw     syscall.RawConn // nil if the connection is not a TCP socket
	rawErr  error
	readRaw func(fd uintptr) bool
}

func (in *input) init(c *conn, unread []byte) {
	in.c = c
	if len(unread) > 0 {
		in.acquire()
		in.w = copy(in.buf[:], unread)
	}
	if in.raw = rawConn(c.net); in.raw != nil {
		in.readRaw = in.tryRead
	}
}

func (in *input) acquire() {
	if in.buf == nil {
		in.r, in.w = 0, 0
		if b, ok := in.c.server.inputs.Get().(*[inputSize]byte); ok {
			in.buf = b
		} else {
			in.buf = new([inputSize]byte)
		}
	}
}

// release returns the buffer to the pool. Unread bytes are lost.
func (in *input) release() {
	if in.buf != nil {
		in.c.server.inputs.Put(in.buf)
		in.buf = nil
	}
}

// isEmpty reports whether all bytes that were received have been read.
func (in *input) isEmpty() bool { return in.buf == nil || in.r == in.w }

// Read implements io.Reader for the Framer. Before it waits, the connection begins the
// requests that have been received and sends what is to be sent.
func (in *input) Read(p []byte) (int, error) {
	if in.isEmpty() {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.buf[in.r:in.w])
	in.r += n
	return n, nil
}

// take returns at most n unread bytes. They are valid until the next read.
func (in *input) take(n int) []byte {
	from := in.r
	in.r = min(in.w, from+n)
	return in.buf[from:in.r]
}

// fill reads at least one byte into the empty buffer.
func (in *input) fill() error {
	c := in.c
	if in.more {
		if done, err := in.readMore(); done {
			return err
		}
	}
	c.waitBegan = time.Time{}
	for {
		if err := c.beforeRead(); err != nil {
			return err
		}
		n, err := in.read()
		if n > 0 {
			in.r, in.w = 0, n
			c.pinged = time.Time{}
			return nil
		}
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		default:
			if err := c.afterSilence(time.Now()); err != nil {
				return err
			}
		}
	}
}

// readMore reads what has arrived together with the byte that was read without a buffer.
// Nothing has happened since, so that there is nothing to be done before it waits. done is
// false if it was interrupted.
func (in *input) readMore() (done bool, err error) {
	in.more = false
	n, err := in.c.net.Read(in.buf[:])
	if n > 0 {
		in.r, in.w = 0, n
		return true, nil
	}
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded), err
}

// read waits without a buffer, and then reads into one.
func (in *input) read() (int, error) {
	in.release()
	if in.raw == nil {
		n, err := in.c.net.Read(in.oneByte[:])
		if n > 0 {
			in.acquire()
			in.buf[0] = in.oneByte[0]
			in.more = true
		}
		return n, err
	}
	in.w, in.rawErr = 0, nil
	if err := in.raw.Read(in.readRaw); err != nil {
		return 0, err
	}
	return in.w, in.rawErr
}

// tryRead reads if the socket is readable. The runtime calls it at first, and then
// whenever the socket may be readable. It takes a buffer for the duration of the call,
// and keeps it only if bytes were read.
func (in *input) tryRead(fd uintptr) bool {
	in.acquire()
	n, err := readSocket(fd, in.buf[:])
	switch {
	case err == syscall.EAGAIN:
		in.release()
		return false
	case err != nil:
		in.rawErr = os.NewSyscallError("read", err)
	case n == 0:
		in.rawErr = io.EOF
	}
	in.w = max(n, 0)
	return true
}
