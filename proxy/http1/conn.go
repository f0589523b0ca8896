package http1

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A conn is one client's connection. All of it but what is said to be shared
// belongs to its goroutine.
type conn struct {
	server        *Server
	net           net.Conn
	rawConn       syscall.RawConn       // of net, nil if something lies in between
	socket        syscall.RawConn       // of the socket, nil if there is none
	readFirstFunc func(fd uintptr) bool // reads the first bytes; made once
	tls           bool                  // net is a *tls.Conn
	peer          netip.AddrPort        // once met
	peerKnown     bool
	x             *Exchange // nil while no byte of a request is there
	firstRead     struct {
		n   int
		err error
	} // what first found
	oneByte      [1]byte // for the first byte where reader is nil
	writeOp      writeOp
	writeStep    func(fd uintptr) bool // that of putting
	firstRequest bool                  // no request has come yet
	handedOver   bool                  // to whoever hijacked it
	lastWrite    time.Duration         // now, if the response before was sent without waiting; 0 otherwise

	writeDeadline deadline
	state         atomic.Uint32 // shared

	mu            sync.Mutex // guards what follows, which is shared with an upload
	readDeadline  deadline   // for reading
	bodyUnbounded bool       // the response has begun: the client may send at its own pace
	bodyCanceled  bool       // nobody wants more of the body
	bodyReading   bool       // of the body, in progress

	monitor clientMonitor // shared with the sweep
}

// States of a connection.
const (
	stateActive  uint32 = iota
	stateIdle           // it waits for a request
	stateEnded          // by Shutdown while it was idle, or by itself
	stateAborted        // by Close
)

// errIdleEnded reports that a connection was ended while it was idle.
var errIdleEnded = errors.New("connection ended while idle")

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, firstRequest: true}
	c.socket = rawSocketOf(nc)
	_, c.tls = nc.(*tls.Conn)
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		if runtime.GOOS != "windows" {
			c.rawConn = c.socket
		}
	}
	c.readFirstFunc, c.writeStep = c.readFirst, c.writeOp.step
	return c
}

// rawSocketOf finds the socket under nc, which may be wrapped by TLS or by the PROXY
// protocol; nil if there is none.
func rawSocketOf(nc net.Conn) syscall.RawConn {
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

// A deadline is one that has been set, so that it is not set again and again.
// Setting it costs more than looking, so it may be up to a second late, or an
// eighth of what it bounds if that is less.
type deadline struct {
	at time.Duration // since the server's epoch; 0 for none
}

// next reports whether the deadline has to be set, for something that may take
// until within from now, and to when.
func (d *deadline) next(now, within time.Duration) (at time.Duration, due bool) {
	slack := min(within/8, time.Second)
	want := now + within
	if d.at >= want && d.at <= want+slack {
		return d.at, false
	}
	return want + slack, true
}

// setReadDeadline bounds reading; 0 is no bound. c.mu is held, or there is no upload.
func (c *conn) setReadDeadline(now, within time.Duration) {
	if within == 0 {
		c.clearReadDeadline()
		return
	}
	if at, due := c.readDeadline.next(now, within); due {
		c.readDeadline.at = at
		_ = c.net.SetReadDeadline(c.server.epoch.Add(at)) // fails if the connection is closed, as reading will
	}
}

func (c *conn) clearReadDeadline() {
	if c.readDeadline.at != 0 {
		c.readDeadline.at = 0
		_ = c.net.SetReadDeadline(time.Time{})
	}
}

// setWriteDeadline bounds writing.
func (c *conn) setWriteDeadline() { c.setWriteDeadlineAt(c.server.now()) }

func (c *conn) setWriteDeadlineAt(now time.Duration) {
	within := c.server.Timeouts.Write
	if within == 0 {
		return
	}
	if at, due := c.writeDeadline.next(now, within); due {
		c.writeDeadline.at = at
		_ = c.net.SetWriteDeadline(c.server.epoch.Add(at))
	}
}

// interruptRead ends what c waits for in reading, whoever waits.
func (c *conn) interruptRead() {
	c.readDeadline.at = -1
	_ = c.net.SetReadDeadline(pastTime())
}

// closeWrite sends the end of the stream, and lets the client still send.
func (c *conn) closeWrite() {
	if half, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	if under, ok := c.net.(interface{ Raw() net.Conn }); ok {
		if half, ok := under.Raw().(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// linger waits a little for the client to read what it was sent before the
// connection is closed: closing while bytes are unread resets it.
func (c *conn) linger() {
	c.closeWrite()
	at := time.Now().Add(lingerTimeout)
	if c.net.SetReadDeadline(at) != nil {
		return
	}
	b := c.server.buffers.getBody()
	defer c.server.buffers.put(b)
	for read := 0; read < lingerBytes; {
		n, err := c.net.Read(b)
		if err != nil {
			return
		}
		read += n
	}
}

// timedOut reports whether err is that of a deadline.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// pastTime is a time that has passed: a deadline that ends any wait.
func pastTime() time.Time { return time.Unix(1, 0) }
