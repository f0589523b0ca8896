// Package socket has what HTTP does with sockets below package net: it finds the socket
// of a connection, reads and writes it without the Go scheduler, and looks at the state of the
// other end without reading. It knows no HTTP.
package socket

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
)

// Under returns the connection below TLS and the PROXY protocol, which is nc if there is neither.
func Under(nc net.Conn) net.Conn {
	for {
		switch outer := nc.(type) {
		case interface{ NetConn() net.Conn }:
			nc = outer.NetConn()
		case interface{ Raw() net.Conn }:
			nc = outer.Raw()
		default:
			return nc
		}
	}
}

// CloseWrite closes the sending side of nc: of TLS, or of the socket below the PROXY protocol.
func CloseWrite(nc net.Conn) error {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok {
		half, ok = Under(nc).(interface{ CloseWrite() error })
	}
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// rawConn returns the socket below nc, or nil if there is none.
func rawConn(nc net.Conn) syscall.RawConn {
	if under, ok := Under(nc).(syscall.Conn); ok {
		if raw, err := under.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// TrimRaw removes the prefix "raw-" from the operation in err, so that errors of raw connections
// look like those of other connections.
func TrimRaw(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		op.Op = strings.TrimPrefix(op.Op, "raw-")
	}
	return err
}

// netError returns an error of a system call on the socket of nc in the form that package net
// uses.
func netError(nc net.Conn, call string, err error) error {
	return &net.OpError{
		Op: call, Net: nc.LocalAddr().Network(), Source: nc.LocalAddr(), Addr: nc.RemoteAddr(),
		Err: os.NewSyscallError(call, err),
	}
}

// ErrWouldBlock is the error of reads that would wait. TLS takes it for one after which it can be read again.
var ErrWouldBlock error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "read would wait" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// A tlsConn is a socket below TLS that can be read without waiting.
type tlsConn struct {
	net.Conn           // the socket
	above    *tls.Conn // above the socket
	mode     readMode
	fd       uintptr // for readNow
}

// A readMode is how TLS reads the socket.
type readMode uint8

const (
	readWaiting  readMode = iota // as usual
	readReceived                 // what the socket has received
	readNothing
)

// TLSServer is tls.Server. If nc is a socket, tlsOf has a result for the connection.
func TLSServer(nc net.Conn, config *tls.Config) *tls.Conn { return newTLS(nc, config, tls.Server) }

// TLSClient is tls.Client, like TLSServer.
func TLSClient(nc net.Conn, config *tls.Config) *tls.Conn { return newTLS(nc, config, tls.Client) }

func newTLS(nc net.Conn, config *tls.Config, make func(net.Conn, *tls.Config) *tls.Conn) *tls.Conn {
	if !CanPoll || !isSocket(nc) {
		return make(nc, config)
	}
	c := &tlsConn{Conn: nc}
	c.above = make(c, config)
	return c.above
}

func isSocket(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// tlsOf returns the socket below nc if nc is a TLS connection whose handshake is complete and that was made by this
// package, and nil otherwise.
func tlsOf(nc net.Conn) *tlsConn {
	t, ok := nc.(*tls.Conn)
	if !ok || !t.ConnectionState().HandshakeComplete {
		return nil
	}
	c, _ := t.NetConn().(*tlsConn)
	return c
}

// NetConn returns the socket.
func (c *tlsConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn for TLS.
func (c *tlsConn) Read(p []byte) (int, error) {
	switch c.mode {
	case readReceived:
		return readNow(c.Conn, c.fd, p)
	case readNothing:
		return 0, ErrWouldBlock
	}
	return c.Conn.Read(p)
}

// read returns no error with bytes: before TLS 1.3, TLS looks at what follows them if that may be the end of the
// connection. The next read has the error.
func (c *tlsConn) read(mode readMode, p []byte) (int, error) {
	c.mode = mode
	n, err := c.above.Read(p)
	c.mode = readWaiting
	if n > 0 {
		return n, nil
	}
	return 0, err
}
