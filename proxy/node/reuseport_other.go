//go:build !unix

package node

import (
	"errors"
	"syscall"
)

// reusePort is not supported on this platform.
func reusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("listen.reuse_port is for Unix; leave it out")
}
