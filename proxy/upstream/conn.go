package upstream

import (
	"net"
	"sync/atomic"
	"time"
)

// turnWithin is the longest wait for net/http to read on after an answer, which
// takes microseconds unless something is left over of it.
const turnWithin = time.Second

// A conn is one connection to a target. It gives up when the other end takes
// nothing for the length of stall: net/http bounds only the wait for an answer,
// which begins when the request has been sent whole. And it can tell whether what
// comes first after a request was there before it.
type conn struct {
	net.Conn
	stall   time.Duration
	reading atomic.Bool // somebody waits for bytes, so all before have been taken in
	turning atomic.Bool // nothing has been sent of the request that is next
	closed  atomic.Bool
	changed chan struct{} // holds one: reading or closed is true now
}

func newConn(c net.Conn, stall time.Duration) *conn {
	return &conn{Conn: c, stall: stall, changed: make(chan struct{}, 1)}
}

// turn is called before another request is sent on c.
func (c *conn) turn() { c.turning.Store(true) }

// unasked reports, when bytes come after turn, whether nothing of the request was
// sent before.
func (c *conn) unasked() bool { return c.turning.Load() }

func (c *conn) Read(b []byte) (int, error) {
	c.reading.Store(true)
	if c.turning.Load() {
		c.change()
	}
	n, err := c.Conn.Read(b)
	c.reading.Store(false)
	return n, err
}

// Write sends the beginning of a request only when nothing is left of what was
// read before.
func (c *conn) Write(b []byte) (int, error) {
	if c.turning.Load() {
		if !c.emptied() {
			return 0, net.ErrClosed
		}
		c.turning.Store(false)
	}
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// emptied waits until somebody waits for bytes; false if that will not be.
func (c *conn) emptied() bool {
	if c.reading.Load() {
		return true
	}
	timer := time.NewTimer(turnWithin)
	defer timer.Stop()
	for !c.closed.Load() {
		if c.reading.Load() {
			return true
		}
		select {
		case <-c.changed:
		case <-timer.C:
			return false
		}
	}
	return false
}

func (c *conn) change() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *conn) Close() error {
	c.closed.Store(true)
	c.change()
	return c.Conn.Close()
}

// CloseWrite lets one direction of a WebSocket end before the other.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
