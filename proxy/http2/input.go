package http2

import (
	"errors"
	"os"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// inputSize is the size of the buffer of a connection that is in use. It holds many small
// frames, so that the requests of several streams are read at once.
const inputSize = 16 << 10

// An input reads from a connection. While it waits, it holds no buffer. Only the goroutine that reads the
// connection uses it.
type input struct {
	c       *conn
	buf     *[inputSize]byte // nil if there are no unread bytes
	r, w    int              // the unread bytes are buf[r:w]
	oneByte [1]byte
	more    bool // the last read was into oneByte
	socket  socket.Conn
	readErr error                 // of tryRead
	readRaw func(fd uintptr) bool // tryRead, a method value made once
}

func (i *input) init(c *conn, unread []byte) {
	i.c = c
	if len(unread) > 0 {
		i.acquire()
		i.w = copy(i.buf[:], unread)
	}
	i.socket, i.readRaw = socket.New(c.net), i.tryRead
}

func (i *input) acquire() {
	if i.buf == nil {
		i.buf, i.r, i.w = i.c.server.inputs.Get().(*[inputSize]byte), 0, 0
	}
}

// release returns the buffer to the pool. Unread bytes are lost.
func (i *input) release() {
	if i.buf != nil && reuse.Memory(i.buf[:]) != nil {
		i.c.server.inputs.Put(i.buf)
	}
	i.buf = nil
}

// isEmpty reports whether all bytes that were received have been read.
func (i *input) isEmpty() bool { return i.buf == nil || i.r == i.w }

// Read implements io.Reader for the Framer. Before it waits, the connection begins the
// requests that have been received and sends what is to be sent.
func (i *input) Read(p []byte) (int, error) {
	if i.isEmpty() {
		if err := i.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, i.buf[i.r:i.w])
	i.r += n
	return n, nil
}

// take returns at most n unread bytes. They are valid until the next read.
func (i *input) take(n int) []byte {
	from := i.r
	i.r = min(i.w, from+n)
	return i.buf[from:i.r]
}

// fill reads at least one byte into the empty buffer.
func (i *input) fill() error {
	c := i.c
	c.waitBegan = time.Time{}
	for {
		if err := c.beforeRead(); err != nil {
			return err
		}
		n, err := i.read()
		if n > 0 {
			i.r, i.w = 0, n
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

// read waits without a buffer, and then reads into one. If the socket cannot be read, it first reads
// into one byte, and the next time into a buffer, because more has mostly arrived together with
// that byte.
func (i *input) read() (int, error) {
	i.release()
	switch {
	case i.socket.CanReadNow():
		i.w, i.readErr = 0, nil
		if err := i.socket.Raw.Read(i.readRaw); err != nil {
			return 0, err
		}
		return i.w, i.readErr
	case i.more:
		i.more = false
		i.acquire()
		return i.c.net.Read(i.buf[:])
	default:
		n, err := i.c.net.Read(i.oneByte[:])
		if n > 0 {
			i.acquire()
			i.buf[0] = i.oneByte[0]
			i.more = true
		}
		return n, err
	}
}

// tryRead reads if the socket is readable. The runtime calls it at first, and then
// whenever the socket may be readable. It takes a buffer for the duration of the call,
// and keeps it only if bytes were read.
func (i *input) tryRead(fd uintptr) bool {
	i.acquire()
	i.w, i.readErr = i.socket.ReadNow(fd, i.buf[:])
	if i.readErr == socket.ErrWouldBlock { //nolint:errorlint // it is never wrapped
		i.release()
		return false
	}
	return true
}
