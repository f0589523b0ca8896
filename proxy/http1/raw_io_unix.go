//go:build unix && (!linux || 386 || race)

package http1

import "syscall"

func rawRead(fd int, p []byte) (int, syscall.Errno)  { return rawIO(syscall.Read, fd, p) }
func rawWrite(fd int, p []byte) (int, syscall.Errno) { return rawIO(syscall.Write, fd, p) }

func rawIO(call func(fd int, p []byte) (int, error), fd int, p []byte) (int, syscall.Errno) {
	for {
		n, err := call(fd, p)
		if err == nil {
			return n, 0
		}
		if errno := err.(syscall.Errno); errno != syscall.EINTR { //nolint:errorlint // system calls return unwrapped errors
			return 0, errno
		}
	}
}
