//go:build linux && !race

package http1

import (
	"syscall"
	"unsafe"
)

// rawRead is read(2) for a non-blocking socket. Unlike syscall.Read it does not inform
// the Go scheduler. Informing it costs more than the call itself. On a busy machine it
// costs much more: if the kernel preempts the process during a call that the scheduler
// knows about, the runtime starts another thread. The race detector derives
// happens-before relations from the calls that it knows about, so that race builds use
// those. A call that was interrupted by a signal is repeated. n is not negative. The
// result is an Errno, which is 0 if there was no error, because comparing values of
// type error costs a call each.
func rawRead(fd int, p []byte) (n int, err syscall.Errno) {
	return rawIO(syscall.SYS_READ, fd, p)
}

// rawWrite is write(2), in the same way as rawRead.
func rawWrite(fd int, p []byte) (n int, err syscall.Errno) {
	return rawIO(syscall.SYS_WRITE, fd, p)
}

func rawIO(call uintptr, fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
		switch err {
		case 0:
			return int(n), 0
		case syscall.EINTR:
			continue
		}
		return 0, err
	}
}
