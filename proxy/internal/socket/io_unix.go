//go:build unix && (!linux || 386 || race)

package socket

import "syscall"

func read(fd int, p []byte) (int, syscall.Errno)  { return raw(syscall.Read, fd, p) }
func write(fd int, p []byte) (int, syscall.Errno) { return raw(syscall.Write, fd, p) }

func raw(call func(fd int, p []byte) (int, error), fd int, p []byte) (int, syscall.Errno) {
	n, err := call(fd, p)
	if err != nil {
		return 0, err.(syscall.Errno) //nolint:errorlint // it is never wrapped
	}
	return n, 0
}
