package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A conn is one client's connection. It gives up when the client takes nothing
// for the length of stall, and it reads along to notice faulty framing. A client that
// ends its side only still gets its answer; see untilReset.
type conn struct {
	net.Conn
	stall time.Duration
	first func() // before the first byte is read; nil for nothing
	framing
	since   time.Time  // when it was made
	writing sync.Mutex // held while something is written
	writes  atomic.Int64
	written int64        // of them, before the request that was read last
	armed   atomic.Int64 // when the deadline for writing was last set, in ns after since; 0 for not
}

func newConn(c net.Conn, stall time.Duration) *conn {
	return &conn{Conn: c, stall: stall, since: time.Now()}
}

func (c *conn) Read(p []byte) (int, error) {
	if c.first != nil {
		c.first()
		c.first = nil
	}
	for {
		n, err := c.Conn.Read(p)
		if n > 0 {
			if n = c.skip(p[:n]); n == 0 && err == nil {
				continue // an empty line and nothing else
			}
			c.see(p[:n])
			c.written = c.writes.Load()
		}
		if n == 0 && err == io.EOF && watches(p) { //nolint:errorlint // it is never wrapped
			err = c.untilReset()
		}
		return n, err
	}
}

// Write bounds how long one piece may take to be taken. The deadline is set anew
// when an eighth of it has passed, not for every piece.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.writes.Add(1)
	now := time.Since(c.since)
	if armed := c.armed.Load(); armed == 0 || now-time.Duration(armed) > c.stall/8 {
		if err := c.Conn.SetWriteDeadline(c.since.Add(now + c.stall)); err != nil {
			return 0, err
		}
		c.armed.Store(int64(now))
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline is for net/http's own ends; the next Write sets ours again.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.armed.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *conn) SetDeadline(t time.Time) error {
	c.armed.Store(0)
	return c.Conn.SetDeadline(t)
}

// CloseWrite lets the client read the end of an answer while it still sends.
func (c *conn) CloseWrite() error {
	inner := c.Conn
	if wrapped, ok := inner.(interface{ Raw() net.Conn }); ok { // of the PROXY protocol
		inner = wrapped.Raw()
	}
	if half, ok := inner.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// of is c itself, for those who hold one of the types that embed it.
func (c *conn) of() *conn { return c }

// A secureConn is a conn inside of TLS.
type secureConn struct {
	*conn
	tls *tls.Conn
}

// ConnectionState lets net/http fill in Request.TLS.
func (c secureConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
