package frontend

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pending reports whether a connection waits at l to be accepted.
func pending(l net.Listener) (waits bool) {
	control(l, func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits
}

// dropSYN lets l hear of no new connection any more, while those that are being
// opened still arrive: a filter drops the packets that begin one. Clients send
// them again after a second, and reach whoever listens there then. Without it the
// kernel, which shares connections out by their addresses, would give some to a
// listener that is just about to be closed, and reset them.
func dropSYN(l net.Listener) {
	const flags, synAck, syn, all = 13, 0x12, 0x02, 0xffffffff // of a TCP header
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: synAck},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	control(l, func(fd int) {
		// Without the filter a few connections may be lost, and nothing else.
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
}

// control calls f with the descriptor of l, if it has one.
func control(l net.Listener, f func(fd int)) {
	if socket, ok := l.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
