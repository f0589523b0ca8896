package proxy

import "golang.org/x/sys/unix"

// isReset reports whether the other end of a socket has reset the connection. A read
// would not tell: behind the end of the client's side it never fails.
func isReset(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd)}} // these two are always told
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
