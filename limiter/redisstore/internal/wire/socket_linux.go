//go:build linux && !386 && !race

package wire

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// A socketConn reads and writes the socket of a net.Conn by system calls that the
// scheduler is not told of. They do not block, so it has nothing to do with them; and a
// process that the kernel suspends in the middle of a call that the scheduler knows of
// gets another thread started for it. At 5,000 lone decisions a second that costs up to
// one futex call and one wake-up of the scheduler's monitor for each.
//
// One goroutine may read while another writes. Deadlines and Close work as those of the
// net.Conn. The race detector learns the order of events from calls that the scheduler
// knows of, so it runs with the net.Conn itself.
type socketConn struct {
	net.Conn
	raw        syscall.RawConn
	read, sent transfer
}

// A transfer is one Read or Write in progress.
type transfer struct {
	name        string
	call, flags uintptr
	buf         []byte
	n           int // bytes of buf that are done
	errno       syscall.Errno
	step        func(fd uintptr) bool
}

// newSocketConn returns a socketConn for c, or c itself if it is no plain socket.
func newSocketConn(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	s := &socketConn{Conn: c, raw: raw, read: transfer{name: "read", call: syscall.SYS_RECVFROM},
		sent: transfer{name: "write", call: syscall.SYS_SENDTO, flags: syscall.MSG_NOSIGNAL}}
	s.read.step, s.sent.step = s.read.attempt, s.sent.attempt // made once: a method value is an allocation
	return s
}

// Read implements net.Conn.
func (s *socketConn) Read(p []byte) (n int, err error) {
	if n, err = s.do(&s.read, s.raw.Read, p); n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (s *socketConn) Write(p []byte) (int, error) { return s.do(&s.sent, s.raw.Write, p) }

// do has t done for p. It returns the errors that the net package returns.
func (s *socketConn) do(t *transfer, wait func(func(fd uintptr) bool) error, p []byte) (int, error) {
	if t.buf, t.n, t.errno = p, 0, 0; len(p) == 0 {
		return 0, nil
	}
	err := wait(t.step)
	if t.buf = nil; err == nil && t.errno != 0 {
		err = &net.OpError{Op: t.name, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(),
			Err: os.NewSyscallError(t.name, t.errno)}
	}
	return t.n, err
}

// attempt reads once, or writes as much as the socket takes. It reports whether there is nothing more to wait for.
func (t *transfer) attempt(fd uintptr) bool {
	for {
		rest := t.buf[t.n:]
		n, _, errno := syscall.RawSyscall6(t.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)), t.flags, 0, 0)
		switch {
		case errno == syscall.EINTR: // by a signal
			continue
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			t.errno = errno
			return true
		}
		if t.n += int(n); t.call == syscall.SYS_RECVFROM || t.n == len(t.buf) {
			return true
		}
	}
}
