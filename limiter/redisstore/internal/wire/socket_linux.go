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
	buf  []byte
	n    int // bytes of buf that are done
	err  error
	step func(fd uintptr) bool // one attempt; reports whether there is nothing more to wait for
}

// newSocketConn returns a socketConn for c, or c itself if it is no plain socket.
func newSocketConn(c net.Conn) net.Conn {
	var socket syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		socket = c
	case *net.UnixConn:
		socket = c
	default:
		return c
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return c
	}
	s := &socketConn{Conn: c, raw: raw}
	s.read.step, s.sent.step = s.read.receive, s.sent.send // made once: a method value is an allocation
	return s
}

// Read implements net.Conn.
func (s *socketConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t := &s.read
	t.buf, t.n, t.err = p, 0, nil
	err := s.raw.Read(t.step)
	t.buf = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != nil:
		return 0, s.failure("read", t.err)
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// Write implements net.Conn.
func (s *socketConn) Write(p []byte) (int, error) {
	t := &s.sent
	t.buf, t.n, t.err = p, 0, nil
	err := s.raw.Write(t.step)
	t.buf = nil
	if err == nil && t.err != nil {
		err = s.failure("write", t.err)
	}
	return t.n, err
}

// failure is what the net package returns when a system call fails.
func (s *socketConn) failure(call string, err error) error {
	return &net.OpError{
		Op: call, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(call, err),
	}
}

// receive reads once.
func (t *transfer) receive(fd uintptr) bool {
	n, errno := rawIO(syscall.SYS_RECVFROM, fd, t.buf, 0)
	switch errno {
	case 0:
		t.n = n
	case syscall.EAGAIN:
		return false
	default:
		t.err = errno
	}
	return true
}

// send writes until everything is written, or the socket takes no more now.
func (t *transfer) send(fd uintptr) bool {
	for t.n < len(t.buf) {
		n, errno := rawIO(syscall.SYS_SENDTO, fd, t.buf[t.n:], syscall.MSG_NOSIGNAL)
		switch errno {
		case 0:
			t.n += n
		case syscall.EAGAIN:
			return false
		default:
			t.err = errno
			return true
		}
	}
	return true
}

// rawIO makes a system call for p, again if a signal interrupts it.
func rawIO(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}
