package http1

import (
	"bytes"
	"errors"
	"io"
	"net"

	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// serve reads requests and calls the handler until the connection ends. Any error ends
// the connection: serve never tries to find the start of the next request after an
// invalid one.
func (c *conn) serve() {
	defer func() {
		v := recover()
		if x := c.x; v != nil && x != nil {
			if x.Committed() && (x.progress != responseDone || len(x.out.buf) > 0) {
				c.abort()
			}
			c.x = nil // not recycled: another goroutine may still use it
		}
		c.close()
		if v != nil {
			c.server.OnPanic(v)
		}
	}()
	for c.waitForRequest() == nil {
		switch err := c.readHead(); {
		case err == nil:
		case err == ErrMajorVersion && c.handOverHTTP2(): //nolint:errorlint // it is never wrapped
			return
		default:
			c.refuseRequest(err)
			return
		}
		c.server.Handler(c.x)
		if !c.finishExchange() {
			return
		}
	}
}

// close closes the connection, unless it was handed over, and releases its buffers.
func (c *conn) close() {
	c.state.Store(stateEnded)
	c.monitor.stop()
	if !c.handedOver {
		_ = c.net.Close()
	}
	c.releaseExchange()
}

// readHead reads and parses the head of a request.
func (c *conn) readHead() error {
	x := c.x
	if x.hadRequest {
		x.reset()
	}
	x.hadRequest = true
	for empty := 0; ; {
		if rest := x.in.unread(); x.Request.parser.atStart() && len(rest) > 0 && rest[0] == '\r' {
			n, err := lineEnd(rest, 0, fieldLimits{})
			if err != nil {
				return err
			}
			if n > 0 { // an empty line before a request (RFC 9112 section 2.2)
				x.in.r += n
				if empty++; empty > maxEmptyLines {
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
				x.in.retainHead(n)
				if b := x.Body(); b != nil {
					b.open(&x.in, c, x.Request.Framing, &c.server.Limits)
				}
				c.monitor.reset(x)
				return nil
			}
		}
		if err := c.readMoreHead(); err != nil {
			return err
		}
	}
}

// readMoreHead reads more bytes of a head, which has one deadline as a whole.
func (c *conn) readMoreHead() error {
	x := c.x
	x.in.growHead(c.server.Limits.Head)
	if x.headStarted == 0 {
		x.headStarted = c.server.now()
		if !c.firstRequest || c.readDeadline.at <= 0 { // the first deadline applies from the start of the connection
			c.setReadDeadline(x.headStarted, c.server.Timeouts.header())
		}
	}
	return x.in.fill()
}

// refuseRequest responds to a request whose head could not be read, unless the client
// is gone.
func (c *conn) refuseRequest(err error) {
	x := c.x
	var refusal *Error
	switch {
	case errors.As(err, &refusal):
	case timedOut(err):
		refusal = &Error{408, "request timeout"}
	default:
		return
	}
	x.Request.Close, x.Request.Framing, x.Request.Minor = true, Framing{NoBody, -1}, 1
	if c.server.ErrorHandler != nil {
		c.server.ErrorHandler(x, refusal)
	} else {
		_ = x.sendText(refusal.Status, refusal.text) // the write fails if the client is gone
	}
	if x.progress == responseDone && x.Flush() == nil {
		c.linger()
	}
}

// handOverHTTP2 hands the connection to Server.HTTP2 if it begins with the HTTP/2
// connection preface (RFC 9113 section 3.4). Its callers hold no exchange on their stacks, which would
// keep its memory as long as the connection.
func (c *conn) handOverHTTP2() bool {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if !c.firstRequest || c.server.HTTP2 == nil {
		return false
	}
	for {
		buf := c.x.in.unread()
		if !bytes.HasPrefix(buf, []byte(preface[:min(len(buf), len(preface))])) {
			return false
		}
		if len(buf) >= len(preface) {
			break
		}
		if c.readMoreHead() != nil {
			return false
		}
	}
	unread := bytes.Clone(c.x.in.unread())
	c.handedOver = true
	c.clearReadDeadline()
	c.releaseExchange()
	c.server.HTTP2(c.net, unread)
	return true
}

// finishExchange reports whether the connection can carry another request, and prepares
// it for that. It must be certain that the request and the response are complete;
// otherwise the connection ends.
func (c *conn) finishExchange() bool {
	x := c.x
	c.monitor.stop()
	if c.firstRequest {
		c.firstRequest = false
		c.socket.FindTLS()
	}
	if x.progress == responseDone && !x.aborted && !c.canDelayWrite() {
		_ = x.Flush() // the error is in x.err
	}
	switch {
	case x.hijacked:
		c.handedOver = true
		return false
	case x.aborted || x.progress != responseDone || x.err != nil:
		c.abort()
		return false
	}
	if b := x.Body(); b != nil && !b.done() && !c.drainBody(b) {
		x.closeConn = true
	}
	if x.closeConn {
		if b := x.Body(); b != nil && !b.done() || len(x.in.unread()) > 0 || c.socket.State() == socket.Readable {
			c.linger()
		}
		return false
	}
	c.bodyUnbounded, c.bodyCanceled = false, false
	x.in.nextMessage()
	return true
}

// canDelayWrite reports whether waitForRequest can send the rest of the response, which
// costs less: there is nothing else to do before that.
func (c *conn) canDelayWrite() bool {
	x := c.x
	return c.socket.IsPlain && x.err == nil && !x.hijacked && !x.closeConn && (x.Body() == nil || x.body.done()) &&
		len(x.in.unread()) == 0
}

// drainBody reads the rest of a body that the handler has not read. It gives up after
// maxDrained bytes.
func (c *conn) drainBody(b *Body) bool {
	if b.err != nil || c.x.closeConn || b.maxBytes > 0 && b.received > b.maxBytes {
		return false
	}
	c.bodyUnbounded, b.maxBytes = false, 0
	c.x.in.discardRest()
	for read := 0; read <= maxDrained; {
		data, err := b.Next()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		read += len(data)
	}
	return false
}

// abort closes the connection in the middle of a response so that the client can detect
// the truncation. A response that is delimited by the end of the connection would look
// complete after an orderly close, so that the connection is reset in this case.
func (c *conn) abort() {
	sock := socket.Under(c.net) // TLS would send a close_notify alert
	if tcp, ok := sock.(*net.TCPConn); ok && c.x.framing.Kind == UntilClose {
		_ = tcp.SetLinger(0)
	}
	_ = sock.Close()
}
