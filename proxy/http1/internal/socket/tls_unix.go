//go:build unix

package socket

import (
	"io"
	"syscall"
)

// readSocket reads what the socket has received.
func (c *TLSConn) readSocket(p []byte) (int, error) {
	n, err := Read(c.fd, p)
	switch {
	case err == syscall.EAGAIN:
		return 0, ErrWouldBlock
	case err != 0:
		return 0, Error(c.Conn, "read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}
