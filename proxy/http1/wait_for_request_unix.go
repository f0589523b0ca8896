//go:build unix

package http1

import (
	"io"
	"runtime"
	"syscall"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// readFirst sends what is left of a response, and then reads the first bytes of the next
// request. The runtime calls it once at first, and then whenever the socket may be
// readable. The connection takes a buffer for the duration of the call, and keeps it
// only if bytes were read. If the socket does not accept the whole response, readFirst
// reads nothing. Between the response and the read it may yield if there is one processor;
// see readYield.
func (c *conn) readFirst(fd uintptr) bool {
	c.firstRead.n, c.firstRead.err = 0, nil
	yielded := false
	if x := c.x; x != nil { // it has responded
		if len(x.out.buf) > 0 && !c.writeRest(int(fd)) {
			return true
		}
		if yielded = c.server.yields && c.yield.due(); yielded {
			runtime.Gosched()
		}
	}
	c.acquireExchange()
	blocked := c.readNow(fd)
	if yielded {
		if blocked {
			c.yield.foundNothing()
		} else {
			c.yield.found()
		}
		if !c.x.waited {
			c.yield.skipNext()
		}
	}
	if blocked {
		c.releaseExchange()
	}
	return !blocked
}

// writeRest sends what is left of a response to a plain socket. It reports whether the socket has accepted all of it.
func (c *conn) writeRest(fd int) bool {
	x := c.x
	c.writeGuard.begin()
	n, _ := socket.Write(fd, x.out.buf) // the next write returns the error, if there is one
	c.writeGuard.end()
	x.out.buf = x.out.buf[:copy(x.out.buf, x.out.buf[n:])]
	return len(x.out.buf) == 0
}

// readNow reads what has arrived into the buffer of the exchange. blocked is true if that is nothing; otherwise
// firstRead has the result.
func (c *conn) readNow(fd uintptr) (blocked bool) {
	if c.secure != nil {
		c.firstRead.n, c.firstRead.err = c.secure.ReadNow(fd, c.x.in.buf)
		return c.firstRead.err == socket.ErrWouldBlock //nolint:errorlint // TLS returns it unwrapped
	}
	n, err := socket.Read(int(fd), c.x.in.buf)
	c.firstRead.n = n
	switch {
	case err == syscall.EAGAIN:
		return true
	case err != 0:
		c.firstRead.err = err
	case n == 0:
		c.firstRead.err = io.EOF
	}
	return false
}
