//go:build unix

package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// CanPoll reports whether the state of a connection can be found out without reading.
const CanPoll = true

// StateOf returns the state of the other end of a socket. It does not read from the
// socket, and may be called while another goroutine reads. It returns Open if
// socket is nil.
func StateOf(socket syscall.RawConn) State {
	if socket == nil {
		return Open
	}
	p := Reset
	_ = socket.Control(func(fd uintptr) { p = pollPeer(fd) }) // fails if the socket is closed, which counts as reset
	return p
}

func pollPeer(fd uintptr) State {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | pollHangup}}
	n, err := unix.Poll(fds[:], 0)
	switch events := fds[0].Revents; {
	case err != nil || n == 0:
		return Open
	case events&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
		if pollHangup == 0 {
			return peekPeer(int(fd))
		}
		return Reset
	case events&pollHangup != 0:
		return HalfClosed
	}
	return Readable
}

// peekPeer returns the state of the other end of a non-blocking socket for systems on
// which POLLHUP may also mean that it is half-closed, such as macOS.
func peekPeer(fd int) State {
	var b [1]byte
	switch n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK); {
	case err == unix.EAGAIN: //nolint:errorlint // system calls return unwrapped errors
		return Open
	case err != nil:
		return Reset
	case n == 0:
		return HalfClosed
	}
	return Readable
}

// Step is called by the runtime when the socket may be writable. It returns true when there is
// nothing more to wait for.
func (w *WriteOp) Step(fd uintptr) bool {
	for w.n < len(w.Data) {
		n, err := Write(int(fd), w.Data[w.n:])
		switch err {
		case 0:
			w.n += n
		case syscall.EAGAIN:
			return false
		default:
			w.Err = err
			return true
		}
	}
	return true
}
