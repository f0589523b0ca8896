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
	if x := c.x; x != nil && len(x.out.buf) > 0 {
		c.writeGuard.begin()
		n, _ := socket.Write(int(fd), x.out.buf) // the next write returns the error, if there is one
		c.writeGuard.end()
		if x.out.buf = x.out.buf[:copy(x.out.buf, x.out.buf[n:])]; len(x.out.buf) > 0 {
			return true
		}
		if yielded = c.server.yields && c.yield.due(); yielded {
			runtime.Gosched()
		}
	}
	c.acquireExchange()
	n, err := socket.Read(int(fd), c.x.in.buf)
	if yielded {
		if err == syscall.EAGAIN {
			c.yield.foundNothing()
		} else {
			c.yield.found()
		}
		if !c.x.waited {
			c.yield.skipNext()
		}
	}
	c.firstRead.n = n
	switch {
	case err == syscall.EAGAIN:
		c.releaseExchange()
		return false
	case err != 0:
		c.firstRead.err = err
	case n == 0:
		c.firstRead.err = io.EOF
	}
	return true
}
