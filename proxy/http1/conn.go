package http1

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// A conn is one client connection, kept alive (keep-alive) between requests. Its fields belong to the goroutine that serves the
// connection, except those that are marked as shared.
type conn struct {
	server        *Server
	net           net.Conn
	socket        socket.Conn           // of net
	readFirstFunc func(fd uintptr) bool // c.readFirst; a method value made once, to avoid an allocation per call
	tls           bool                  // net is a *tls.Conn
	peer          netip.AddrPort        // valid if peerKnown
	peerKnown     bool
	x             *Exchange // nil while no byte of a request has been read
	firstReadErr  error     // of readFirst
	yield         readYield
	oneByte       [1]byte // buffer for the first byte of a request if the socket cannot be read
	writeGuard    writeGuard
	firstRequest  bool // the first request of the connection has not ended
	handedOver    bool // the connection belongs to another owner

	writeDeadline deadline
	state         atomic.Uint32 // shared

	mu            sync.Mutex // guards the fields below, which are shared with an upload
	readDeadline  deadline   // a negative time means that interruptRead has set one
	bodyUnbounded bool       // Timeouts.Body no longer applies: the response has started
	bodyCanceled  bool       // CancelBodyRead was called
	bodyReading   bool       // a read of the body is in progress

	monitor clientMonitor // shared with Server.monitorClients
}

// The states of a connection.
const (
	stateActive  uint32 = iota
	stateIdle           // waiting for a request
	stateEnded          // ended by Shutdown while idle, or closed
	stateAborted        // closed by Server.Close
)

// errIdleEnded reports that Shutdown ended the connection while it was idle.
var errIdleEnded = errors.New("idle connection closed")

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, socket: socket.New(nc), firstRequest: true}
	_, c.tls = nc.(*tls.Conn)
	c.readFirstFunc = c.readFirst
	return c
}

// A deadline remembers the deadline that was last set on a connection. Setting a
// deadline costs more than comparing times, so set does not set a new one if the
// current one is close enough. A deadline is therefore never early, and late by at most
// one second or an eighth of the timeout, whichever is less.
type deadline struct {
	at time.Duration // since the epoch of the server or client; 0 if no deadline is set
}

// set sets the deadline of an operation that may take until now+timeout on a connection, or removes it if timeout is 0,
// unless the current one can stay. It fails only if the connection is closed, and then the operation fails, too.
func (d *deadline) set(on func(time.Time) error, epoch time.Time, now, timeout time.Duration) {
	slack := min(timeout/8, time.Second)
	want := now + timeout
	switch {
	case timeout == 0 && d.at != 0:
		d.at = 0
		_ = on(time.Time{})
	case timeout != 0 && (d.at < want || d.at > want+slack):
		d.at = want + slack
		_ = on(epoch.Add(d.at))
	}
}

// setReadDeadline sets the deadline for reads to now+timeout, or removes it if timeout
// is 0. The caller holds c.mu, or no upload is running.
func (c *conn) setReadDeadline(now, timeout time.Duration) {
	c.readDeadline.set(c.net.SetReadDeadline, c.server.epoch, now, timeout)
}

func (c *conn) clearReadDeadline() { c.setReadDeadline(0, 0) }

// setWriteDeadline sets the deadline for writes according to Timeouts.Write.
func (c *conn) setWriteDeadline() {
	c.writeDeadline.set(c.net.SetWriteDeadline, c.server.epoch, c.server.now(), c.server.Timeouts.Write)
}

// interruptRead makes a pending read of any goroutine return with a timeout error. The
// caller holds c.mu.
func (c *conn) interruptRead() {
	c.readDeadline.at = -1
	_ = c.net.SetReadDeadline(pastTime())
}

// linger reads and discards what the client still sends before the connection is closed,
// until the client stops or is slower than minBodyRate, or lingerTimeout has passed.
// Closing a socket with unread bytes resets the connection, and the reset can destroy a
// response that the client has not read yet (RFC 9112 section 9.6). Many clients read the
// response only after they have sent all of the request.
func (c *conn) linger() {
	_ = socket.CloseWrite(c.net) // the client can still send
	b := c.x.in.headBuf          // nothing refers to it any more
	received := 0
	for began := c.server.now(); ; {
		now := c.server.now()
		passed := now - began
		left := lingerTimeout - passed
		if c.server.keepAlivesDisabled.Load() || received < minBodyRate*int(passed/time.Second) {
			left = lingerIdle - passed
		}
		if left <= 0 || c.net.SetReadDeadline(c.server.epoch.Add(now+min(left, lingerIdle))) != nil {
			return
		}
		n, err := c.net.Read(b)
		if err != nil {
			return
		}
		received += n
	}
}

// timedOut reports whether err was caused by a deadline.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// pastTime returns a time in the past. Used as a deadline, it ends any pending read or
// write.
func pastTime() time.Time { return time.Unix(1, 0) }
