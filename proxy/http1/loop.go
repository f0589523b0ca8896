package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
)

// serve is the life of a connection: requests are read, and answered, one after
// another. Whatever goes wrong ends it; it is never tried to find the beginning
// of another request.
func (c *conn) serve() {
	var why error
	defer func() {
		v := recover()
		if v != nil { // whoever else uses the exchange may go on doing so
			c.x = nil
		}
		c.end(why)
		if v != nil {
			c.server.panicked(v)
		}
	}()
	for {
		if why = c.waitForRequest(); why != nil {
			if errors.Is(why, io.EOF) {
				why = nil
			}
			return
		}
		if why = c.head(); why != nil {
			why = c.refuse(why)
			return
		}
		c.server.Handler(c.x)
		if !c.finish() {
			return
		}
	}
}

// end closes the connection and gives back what it holds.
func (c *conn) end(why error) {
	c.state.Store(ended)
	c.watch.stop()
	if !c.handed {
		_ = c.net.Close()
	}
	c.giveBack()
	if c.server.Closed != nil {
		c.server.Closed(c.net, why)
	}
}

// head reads the head of a request.
func (c *conn) head() error {
	x := c.x
	if x.used {
		x.reset()
	}
	x.used = true
	for empty := 0; ; {
		if rest := x.in.unread(); x.Request.stage == atStartLine && len(rest) > 0 && rest[0] == '\r' {
			n, err := lineEnd(rest, 0)
			if err != nil {
				return err
			}
			if n > 0 { // an empty line before a request (RFC 9112 section 2.2)
				x.in.r += n
				if empty++; empty > c.server.Limits.Empty {
					return ErrRequestLine
				}
				continue
			}
		} else if len(rest) > 0 {
			n, err := x.Request.Parse(rest, &c.server.Limits)
			if err != nil {
				return err
			}
			if n > 0 {
				x.in.keepHead(n)
				x.body.open(&x.in, c, x.Request.Framing, &c.server.Limits)
				c.watch.request(x)
				return nil
			}
		}
		if err := c.moreHead(); err != nil {
			return err
		}
	}
}

// moreHead reads more of a head, which must be whole in time.
func (c *conn) moreHead() error {
	x := c.x
	x.in.growHead(c.server.Limits.Head)
	if x.began == 0 {
		x.began = c.server.now()
	}
	if within := c.server.Timeouts.Header; within > 0 && (c.armed.at == 0 || c.armed.at > x.began+within) {
		c.armed.at = x.began + within
		_ = c.net.SetReadDeadline(c.server.epoch.Add(c.armed.at))
	}
	return x.in.fill()
}

// refuse answers a head that cannot be read, unless there is nobody to answer.
func (c *conn) refuse(why error) error {
	x := c.x
	var refusal *Error
	switch {
	case errors.As(why, &refusal):
		if refusal == ErrMajorVersion && c.handHTTP2() {
			return nil
		}
	case timedOut(why):
		refusal = &Error{408, "request not sent in time"}
	default:
		if errors.Is(why, io.EOF) {
			why = ErrCut
		}
		return why
	}
	x.Request.Closes, x.Request.Framing, x.Request.Minor = true, Framing{None, -1}, 1
	if c.server.Refuse != nil {
		c.server.Refuse(x, refusal)
	} else {
		_ = x.text(refusal.Status, refusal.text) // the client may have left
	}
	if x.stage == answered && x.Flush() == nil {
		c.linger()
	}
	return why
}

// handHTTP2 hands a connection over that speaks HTTP/2 from the beginning.
func (c *conn) handHTTP2() bool {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if !c.fresh || c.server.HTTP2 == nil {
		return false
	}
	for {
		have := c.x.in.unread()
		if !bytes.HasPrefix(have, []byte(preface[:min(len(have), len(preface))])) {
			return false
		}
		if len(have) >= len(preface) {
			break
		}
		if c.moreHead() != nil {
			return false
		}
	}
	replay := &prefixedConn{c.net, bytes.Clone(c.x.in.unread())}
	c.handed = true
	c.disarmRead()
	c.server.HTTP2(replay)
	return true
}

// A prefixedConn connection begins with what has been read of it already.
type prefixedConn struct {
	net.Conn
	rest []byte
}

func (r *prefixedConn) Read(p []byte) (int, error) {
	if len(r.rest) > 0 {
		n := copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// finish sees whether another request can come after the one that was answered,
// and makes the connection ready for it. That is to be proven: any doubt ends it.
func (c *conn) finish() bool {
	x := c.x
	c.watch.stop()
	c.fresh = false
	if x.stage == answered && !x.aborted && len(x.out.buf) > 0 {
		now := c.server.now()
		if x.flush(now) == nil { // noted in x.err; empty unless the end was to be late
			x.out.release(&c.server.memory) // for whoever answers next: it is in the processor's cache
		}
		if c.reader != nil && !c.putting.waited {
			c.lately = now
		}
	}
	switch {
	case x.hijacked:
		c.handed = true
		return false
	case x.aborted || x.stage != answered || x.err != nil:
		c.cut()
		return false
	}
	if b := x.Body(); b != nil && !b.done() && !c.drain(b) {
		x.closing = true
	}
	if x.closing {
		if b := x.Body(); b != nil && !b.done() || len(x.in.unread()) > 0 || look(c.fd) == Talking {
			c.linger()
		}
		return false
	}
	if c.free || c.stop {
		c.free, c.stop = false, false
	}
	x.in.next()
	return true
}

// drain reads what is left of a body that nobody wants, if that is not much.
func (c *conn) drain(b *Body) bool {
	if b.err != nil || c.x.closing || b.most > 0 && b.got > b.most {
		return false
	}
	c.free, b.most = false, 0
	for read := 0; read <= c.server.Limits.Drain; {
		data, err := b.Next()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		read += len(data)
	}
	return false
}

// cut closes the connection in the middle of a response, such that the client
// cannot take it for whole: a response that ends with its connection is whole
// when that ends in order.
func (c *conn) cut() {
	under := c.net
	for {
		inner, ok := under.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		under = inner.NetConn() // no close_notify is sent
	}
	if inner, ok := under.(interface{ Raw() net.Conn }); ok {
		under = inner.Raw()
	}
	if c.x.framing.Kind == UntilClose {
		if tcp, ok := under.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	_ = under.Close()
}
