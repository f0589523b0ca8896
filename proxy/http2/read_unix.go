//go:build unix

package http2

import (
	"net"
	"syscall"
)

// rawConn returns the socket of a TCP connection for readSocket, and nil for any other
// connection.
func rawConn(c net.Conn) syscall.RawConn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // it is closed already
		return nil
	}
	return raw
}

// readSocket reads from a non-blocking socket.
func readSocket(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
