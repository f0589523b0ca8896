//go:build unix

package http1

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// canPoll reports whether the state of a connection can be found out without reading.
const canPoll = true

// peerState returns the state of the other end of a socket. It does not read from the
// socket, and may be called while another goroutine reads. It returns PeerOpen if
// socket is nil.
func peerState(socket syscall.RawConn) PeerState {
	if socket == nil {
		return PeerOpen
	}
	p := PeerReset
	_ = socket.Control(func(fd uintptr) { p = pollPeer(fd) }) // fails if the socket is closed, which counts as reset
	return p
}

func pollPeer(fd uintptr) PeerState {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | pollHangup}}
	n, err := unix.Poll(fds[:], 0)
	switch events := fds[0].Revents; {
	case err != nil || n == 0:
		return PeerOpen
	case events&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
		if pollHangup == 0 {
			return peekPeer(int(fd))
		}
		return PeerReset
	case events&pollHangup != 0:
		return PeerHalfClosed
	}
	return PeerReadable
}

// peekPeer returns the state of the other end of a non-blocking socket for systems on
// which POLLHUP may also mean that it is half-closed, such as macOS.
func peekPeer(fd int) PeerState {
	var b [1]byte
	switch n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK); {
	case err == unix.EAGAIN: //nolint:errorlint // system calls return unwrapped errors
		return PeerOpen
	case err != nil:
		return PeerReset
	case n == 0:
		return PeerHalfClosed
	}
	return PeerReadable
}
