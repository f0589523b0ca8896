//go:build !unix

package http2

import (
	"net"
	"syscall"
)

// rawConn returns nil: these systems have no non-blocking read.
func rawConn(net.Conn) syscall.RawConn { return nil }

// readSocket is never called.
func readSocket(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
