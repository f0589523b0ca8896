//go:build unix

package http1

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerState asks the socket what can be told of its other end, without reading from
// it, also while somebody else does. Of no socket, nothing can be told.
func peerState(socket syscall.RawConn) PeerState {
	if socket == nil {
		return PeerOpen
	}
	p := PeerReset
	_ = socket.Control(func(fd uintptr) { p = pollPeer(fd) }) // a closed one is broken
	return p
}

func pollPeer(fd uintptr) PeerState {
	what := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | pollHangup}}
	n, err := unix.Poll(what[:], 0)
	switch got := what[0].Revents; {
	case err != nil || n == 0:
		return PeerOpen
	case got&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
		return PeerReset
	case got&pollHangup != 0:
		return PeerHalfClosed
	}
	return PeerReadable
}
