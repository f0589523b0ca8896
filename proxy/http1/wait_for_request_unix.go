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
	for {
		n, err := rawRead(int(fd), c.x.in.buf)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // system calls return unwrapped errors
			continue
		case err == syscall.EAGAIN: //nolint:errorlint // as above
			c.releaseExchange()
			return false
		case err != nil:
			c.firstRead.n, c.firstRead.err = 0, err
		case n == 0:
			c.firstRead.n, c.firstRead.err = 0, io.EOF
		default:
			c.firstRead.n, c.firstRead.err = n, nil
		}
		return true
	}
}
