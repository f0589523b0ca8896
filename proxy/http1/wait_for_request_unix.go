//go:build unix

package http1

import (
	"io"
	"syscall"
)

// readFirst reads the first bytes of a request. The runtime calls it when the socket
// may be readable. The connection takes a buffer for the duration of the call, and
// keeps it only if bytes were read.
func (c *conn) readFirst(fd uintptr) bool {
	c.acquireExchange()
	n, err := rawRead(int(fd), c.x.in.buf)
	c.firstRead.n, c.firstRead.err = n, nil
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
