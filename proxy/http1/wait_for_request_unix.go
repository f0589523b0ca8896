//go:build unix

package http1

import (
	"io"
	"syscall"
)

// readFirst reads the first bytes of a request. It is called by the runtime when
// there may be some; only then does the connection hold a buffer.
func (c *conn) readFirst(fd uintptr) bool {
	c.acquireExchange()
	for {
		n, err := rawRead(int(fd), c.x.in.buf)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // a system call returns it as it is
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
