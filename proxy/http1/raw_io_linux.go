//go:build linux && !race

package http1

import (
	"syscall"
	"unsafe"
)

// rawRead is syscall.Read for a non-blocking socket, but does not inform the Go
// scheduler. Informing it costs more than the call itself. On a busy machine it costs
// much more: if the kernel preempts the process during a call that the scheduler knows
// about, the runtime starts another thread. The race detector derives happens-before
// relations from the calls that it knows about, so that race builds use those.
func rawRead(fd int, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}

// rawWrite is syscall.Write, in the same way as rawRead.
func rawWrite(fd int, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}
