package http1

import (
	"errors"
	"net"
	"os"
	"strings"
)

// A writeOp writes to a socket, until all is written.
type writeOp struct {
	data []byte
	n    int
	err  error

	blocked bool // for the client to take it
}

// writeRaw writes p to the client.
func (c *conn) writeRaw(p []byte) error {
	if c.rawConn == nil {
		_, err := c.net.Write(p)
		return err
	}
	c.writeOp = writeOp{data: p}
	err := c.rawConn.Write(c.writeStep) // made once, or it would be an allocation
	c.writeOp.data = nil
	if err == nil && c.writeOp.err != nil {
		return syscallError(c.net, "write", c.writeOp.err)
	}
	return trimRawOp(err)
}

// trimRawOp calls an operation on a raw connection as it is called on any other.
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

// syscallError is an error of a system call on the socket of nc, as the net package tells
// of it.
func syscallError(nc net.Conn, call string, err error) error {
	return &net.OpError{
		Op: call, Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: os.NewSyscallError(call, err),
	}
}
