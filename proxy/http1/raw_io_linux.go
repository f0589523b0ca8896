//go:build linux && !race

package http1

import (
	"syscall"
	"unsafe"
)

// rawRead is syscall.Read for a socket that does not block. The scheduler is not told
// of it, which costs more than the call, and on a busy machine more than that: a
// process that the kernel puts aside in the middle of a call that the scheduler knows
// of gets another thread started for it. The race detector learns from calls that it
// knows of what happens before what, so that it is given those.
func rawRead(fd int, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}

// rawWrite is syscall.Write, as rawRead.
func rawWrite(fd int, p []byte) (int, error) {
	n, _, err := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}
