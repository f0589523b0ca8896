package http1

import (
	"errors"
	"net"
	"os"
	"strings"
)

// A writing writes to a socket, until all is written.
type writing struct {
	data []byte
	n    int
	err  error

	waited bool // for the client to take it
}

// writeRaw writes p to the client.
func (c *conn) writeRaw(p []byte) error {
	if c.reader == nil {
		_, err := c.net.Write(p)
		return err
	}
	c.putting = writing{data: p}
	err := c.reader.Write(c.putStep) // made once, or it would be an allocation
	c.putting.data = nil
	if err == nil && c.putting.err != nil {
		return failure(c.net, "write", c.putting.err)
	}
	return unraw(err)
}

// unraw calls an operation on a raw connection as it is called on any other.
func unraw(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		op.Op = strings.TrimPrefix(op.Op, "raw-")
	}
	return err
}

// failure is an error of a system call on the socket of nc, as the net package tells
// of it.
func failure(nc net.Conn, call string, err error) error {
	return &net.OpError{
		Op: call, Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: os.NewSyscallError(call, err),
	}
}
