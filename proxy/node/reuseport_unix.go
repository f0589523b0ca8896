//go:build unix

package node

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort allows other sockets to listen on the same address.
func reusePort(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, set)
}
