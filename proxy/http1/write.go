package http1

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

// A writeOp writes all of data to a socket.
type writeOp struct {
	data []byte
	n    int
	err  error
}

// A writeGuard panics if two goroutines write to a connection at the same time. The locks
// of package net do not prevent that: readFirst and reuseAttempt write while they hold
// the one for reading. Without the build tag http1poison it does nothing.
type writeGuard struct{ writing atomic.Bool }

func (g *writeGuard) begin() {
	if poisoned && g.writing.Swap(true) {
		panic("http1: two goroutines write to a connection")
	}
}

func (g *writeGuard) end() {
	if poisoned {
		g.writing.Store(false)
	}
}

// write writes p to the client. On a plain socket it uses writeOp, because rawWrite costs
// less than net.Conn.Write.
func (c *conn) write(p []byte) error {
	c.writeGuard.begin()
	defer c.writeGuard.end()
	if c.rawConn == nil {
		_, err := c.net.Write(p)
		return err
	}
	c.writeOp = writeOp{data: p}
	err := c.rawConn.Write(c.writeStep) // the method value is made once; making it here would allocate
	c.writeOp.data = nil
	if err == nil && c.writeOp.err != nil {
		return syscallError(c.net, "write", c.writeOp.err)
	}
	return trimRawOp(err)
}

// trimRawOp removes the prefix "raw-" from the operation in err, so that errors of raw
// connections look like those of other connections.
func trimRawOp(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		op.Op = strings.TrimPrefix(op.Op, "raw-")
	}
	return err
}

// syscallError returns an error of a system call on the socket of nc in the form that
// the net package uses.
func syscallError(nc net.Conn, call string, err error) error {
	return &net.OpError{
		Op: call, Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: os.NewSyscallError(call, err),
	}
}
