package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
	"time"
)

// A client may end its side of the connection once it has sent a whole request, and
// wait for the answer (half-close, RFC 9112 section 9.6). net/http takes that for a
// client that has left, and it looks the same until something is sent: one that has
// left answers that with a reset. So a read that only watches does not end with the
// client's side but with its reset, and a client that has seen nothing of its answer
// is sent "100 Continue", which every client of HTTP/1.1 skips (RFC 9110 section
// 15.2). One that gets no bytes for the length of stall, in the middle of an answer,
// is taken to have left.

// askAfter is how long a client has to wait for its answer before it is asked
// whether it is still there. Most answers are quicker.
const askAfter = 100 * time.Millisecond

// watches reports whether a read into p is net/http's, to learn whether the client
// is still there while its request is worked on. All others read more at a time.
func watches(p []byte) bool { return len(p) == 1 }

// untilReset returns when the client has left, with io.EOF, or when the deadline for
// reading is over.
func (c *conn) untilReset() error {
	raw := rawConn(c.Conn)
	if raw == nil {
		return io.EOF
	}
	seen, before := c.writes.Load(), c.written
	var timer *time.Timer
	asked, set := false, make(chan struct{})
	timer = time.AfterFunc(askAfter, func() {
		<-set // timer is
		now := c.writes.Load()
		switch {
		case !asked:
			asked = true
			c.ask(before)
		case now != before && now == seen: // the answer has begun, and does not go on
			_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
			return
		}
		seen = now
		timer.Reset(c.stall)
	})
	close(set)
	defer timer.Stop()
	if err := raw.Read(isReset); err != nil {
		return err
	}
	return io.EOF
}

// ask sends what a client that has left answers with a reset, unless its answer has
// begun since: that does as well. HTTP/1.0 has nothing of the kind.
func (c *conn) ask(before int64) {
	if c.older || !c.writing.TryLock() {
		return
	}
	defer c.writing.Unlock()
	if c.writes.Load() != before {
		return
	}
	c.armed.Store(0)
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.stall))
	_, _ = io.WriteString(c.Conn, "HTTP/1.1 100 Continue\r\n\r\n") // if it fails, reading tells
}

// rawConn is the socket of c, nil if there is none.
func rawConn(c net.Conn) syscall.RawConn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if wrapped, ok := c.(interface{ Raw() net.Conn }); ok { // of the PROXY protocol
		c = wrapped.Raw()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
