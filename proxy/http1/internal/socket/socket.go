// Package socket has what HTTP/1.1 does with sockets below package net: it finds the socket
// of a connection, reads and writes it without the Go scheduler, and looks at the state of the
// other end without reading. It knows no HTTP.
//
// Read and Write are meant for functions that syscall.RawConn calls, and for non-blocking
// sockets.
package socket

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
)

// Of returns the socket below nc, which may be wrapped by TLS or by the PROXY protocol. It
// returns nil if there is none.
func Of(nc net.Conn) syscall.RawConn {
	for nc != nil {
		switch under := nc.(type) {
		case syscall.Conn:
			raw, err := under.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			nc = under.NetConn()
		case interface{ Raw() net.Conn }:
			nc = under.Raw()
		default:
			return nil
		}
	}
	return nil
}

// A WriteOp writes all of Data to a socket. Step is what syscall.RawConn.Write calls.
type WriteOp struct {
	Data []byte
	Err  error
	n    int // number of bytes written
}

// TrimRaw removes the prefix "raw-" from the operation in err, so that errors of raw connections
// look like those of other connections.
func TrimRaw(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		op.Op = strings.TrimPrefix(op.Op, "raw-")
	}
	return err
}

// Error returns an error of a system call on the socket of nc in the form that package net
// uses.
func Error(nc net.Conn, call string, err error) error {
	return &net.OpError{
		Op: call, Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(), Err: os.NewSyscallError(call, err),
	}
}
