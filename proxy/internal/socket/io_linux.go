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
// knows about, so that race builds use those. n is meant only without an error. The error is an
// Errno, which is 0 if there was none, because comparing values of type error costs a call each.
// Both are inlined: each return after a call of the kernel is mispredicted.
func read(fd int, p []byte) (n int, err syscall.Errno) {
	got, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
	return int(got), err
}

// write is send(2), in the same way as read. A closed connection is an error, not
// a SIGPIPE.
func write(fd int, p []byte) (n int, err syscall.Errno) {
	sent, _, err := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_NOSIGNAL, 0, 0)
	return int(sent), err
}
