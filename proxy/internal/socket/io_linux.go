//go:build linux && !386 && !race

package socket

import (
	"syscall"
	"unsafe"
)

// read is recv(2) for a non-blocking socket, which costs the kernel less than read(2).
// Unlike syscall.Read it does not inform the Go scheduler. Informing it costs more than
// the call itself. On a busy machine it costs much more: if the kernel preempts the
// process during a call that the scheduler knows about, the runtime starts another
// thread. The race detector derives happens-before relations from the calls that it
// knows about, so that race builds use those. A call that was interrupted by a signal is
// repeated. n is not negative. The result is an Errno, which is 0 if there was no error,
// because comparing values of type error costs a call each.
func read(fd int, p []byte) (n int, err syscall.Errno) {
	return raw(syscall.SYS_RECVFROM, fd, p, 0)
}

// write is send(2), in the same way as read. A closed connection is an error, not
// a SIGPIPE.
func write(fd int, p []byte) (n int, err syscall.Errno) {
	return raw(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL)
}

func raw(call uintptr, fd int, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch err {
		case 0:
			return int(n), 0
		case syscall.EINTR:
			continue
		}
		return 0, err
	}
}
