package frontend

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pending reports whether a connection is waiting in the accept backlog of l.
func pending(l net.Listener) (waits bool) {
	control(l, func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits
}

// dropSYN attaches a packet filter to l that drops SYN packets, so that l gets no new
// connections. Handshakes in progress still complete. Clients send the SYN again after
// a second, and reach another process that listens on the same port. Without the
// filter, the kernel, which distributes connections by address, would give some of them
// to a listener that is about to be closed, and would then reset them.
func dropSYN(l net.Listener) {
	const flags, synAck, syn, all = 13, 0x12, 0x02, 0xffffffff // offset of the flags in a TCP header, and their values
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: synAck},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	control(l, func(fd int) {
		// If it fails, a few connections may be reset.
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
}

// control calls f with the file descriptor of l, if it has one.
func control(l net.Listener, f func(fd int)) {
	if socket, ok := l.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
