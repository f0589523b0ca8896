//go:build unix

package http1

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// look asks the socket what can be told of its other end, without reading from
// it, also while somebody else does. Of no socket, nothing can be told.
func look(socket syscall.RawConn) Presence {
	if socket == nil {
		return Silent
	}
	p := Broken
	_ = socket.Control(func(fd uintptr) { p = lookAt(fd) }) // a closed one is broken
	return p
}

func lookAt(fd uintptr) Presence {
	what := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | pollHangup}}
	n, err := unix.Poll(what[:], 0)
	switch got := what[0].Revents; {
	case err != nil || n == 0:
		return Silent
	case got&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
		return Broken
	case got&pollHangup != 0:
		return Halved
	}
	return Talking
}
