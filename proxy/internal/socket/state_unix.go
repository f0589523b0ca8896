//go:build unix

package socket

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// CanPoll reports whether the state of a connection can be found out without reading.
const CanPoll = true

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

// canWrite reports whether a socket has room for a short write.
func canWrite(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	return err == nil && n > 0
}

// unread returns how many bytes a socket has received that were not read; 0 if it is closed.
func unread(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), askUnread)
	if err != nil {
		return 0
	}
	return n
}

// readNow reads what the socket nc has received.
func readNow(nc net.Conn, fd uintptr, p []byte) (int, error) {
	for {
		switch n, err := read(int(fd), p); {
		case err == syscall.EINTR: // by a signal
		case err == syscall.EAGAIN:
			return 0, ErrWouldBlock
		case err != 0:
			return 0, netError(nc, "read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// writeNow writes as much of p as the socket nc accepts.
func writeNow(nc net.Conn, fd uintptr, p []byte) (n int, err error) {
	for n < len(p) {
		switch more, errno := write(int(fd), p[n:]); {
		case errno == syscall.EINTR: // by a signal
		case errno == syscall.EAGAIN:
			return n, ErrWouldBlock
		case errno != 0:
			return n, netError(nc, "write", errno)
		default:
			n += more
		}
	}
	return n, nil
}
