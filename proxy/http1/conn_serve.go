package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"time"

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

// acquireExchange gives c an exchange with a buffer, unless c has one.
func (c *conn) acquireExchange() {
	if c.x != nil {
		c.x.in.ensureBuffer()
		return
	}
	x := reused[Exchange](&c.server.exchangePool)
	x.conn = c
	x.in.from, x.in.pool = c.net, &c.server.buffers
	x.in.ensureBuffer()
	c.x = x
}

// releaseExchange returns the exchange and its buffers to their pools. The connection
// must be idle or closed.
func (c *conn) releaseExchange() {
	x := c.x
	if x == nil {
		return
	}
	c.x = nil
	x.in.recycle()
	x.out.recycle(&c.server.buffers)
	x.conn = nil
	x.reset()
	c.server.exchangePool.Put(x)
}

// waitForRequest sends what is left of the previous response, if canDelayWrite, and
// waits for the first bytes of a request. A waiting connection holds no buffer. An error
// means that the connection has ended.
func (c *conn) waitForRequest() error {
	if c.x != nil && len(c.x.in.unread()) > 0 {
		return nil
	}
	c.setReadDeadline(c.server.now(), c.firstByteTimeout()) // before endIdleWait can set its own
	if !c.state.CompareAndSwap(stateActive, stateIdle) {
		return errIdleEnded
	}
	err := c.readFirstBytes()
	ended := !c.state.CompareAndSwap(stateIdle, stateActive)
	unsent := c.x != nil && len(c.x.out.buf) > 0 // the socket has not accepted all of it, or it was too late to read
	switch {
	case unsent && c.x.Flush() != nil:
		c.abort()
		return io.EOF
	case unsent && !ended:
		return c.waitForRequest()
	case unsent:
		return c.requestDuringShutdown(os.ErrDeadlineExceeded)
	case ended:
		return c.requestDuringShutdown(err)
	}
	return err
}

// requestDuringShutdown is called if Shutdown ended the idle connection while
// waitForRequest was reading. err is the result of that read. If the first bytes of a
// request arrived at the same moment, this request is served as the last one.
func (c *conn) requestDuringShutdown(err error) error {
	there := err == nil || timedOut(err) && c.socket.State() == socket.Readable
	if !there || !c.state.CompareAndSwap(stateEnded, stateActive) {
		return errIdleEnded
	}
	c.mu.Lock()
	c.readDeadline.at = -1
	c.setReadDeadline(c.server.now(), c.server.Timeouts.header())
	c.mu.Unlock()
	if err == nil {
		return nil
	}
	return c.readFirstBytes()
}

// firstByteTimeout returns how long the first bytes of a request may take. On a new
// connection it is the timeout for a header.
func (c *conn) firstByteTimeout() time.Duration {
	if c.firstRequest {
		return c.server.Timeouts.header()
	}
	return c.server.Timeouts.Idle
}

// readFirstBytes reads the first bytes of a request into the buffer of an exchange.
func (c *conn) readFirstBytes() error {
	if c.socket.CanReadNow() {
		if err := c.socket.Raw.Read(c.readFirstFunc); err != nil {
			return err
		}
		return c.firstReadErr
	}
	c.releaseExchange()
	for {
		n, err := c.net.Read(c.oneByte[:])
		if n > 0 {
			c.acquireExchange()
			c.x.in.w += copy(c.x.in.buf, c.oneByte[:n])
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readFirst sends what is left of a response, and then reads the first bytes of the next
// request. The runtime calls it once at first, and then whenever the socket may be
// readable. The connection takes a buffer for the duration of the call, and keeps it
// only if bytes were read. If the socket does not accept the whole response, readFirst
// reads nothing. Between the response and the read it may yield if there is one processor;
// see readYield.
func (c *conn) readFirst(fd uintptr) bool {
	c.firstReadErr = nil
	yielded := false
	if x := c.x; x != nil { // it has responded
		if len(x.out.buf) > 0 && !c.writeRest(fd) {
			return true
		}
		if yielded = c.server.yields && c.yield.due(); yielded {
			runtime.Gosched()
		}
	}
	c.acquireExchange()
	n, err := c.socket.ReadNow(fd, c.x.in.buf)
	found := err != socket.ErrWouldBlock //nolint:errorlint // it is never wrapped
	if yielded {
		if found {
			c.yield.found()
		} else {
			c.yield.foundNothing()
		}
		if !c.x.waited {
			c.yield.skipSome()
		}
	}
	if !found {
		c.releaseExchange()
		return false
	}
	c.x.in.w += n
	c.firstReadErr = err
	return true
}

// writeRest sends what is left of a response to a plain socket. It reports whether the socket has accepted all of it.
func (c *conn) writeRest(fd uintptr) bool {
	x := c.x
	c.writeGuard.begin()
	n, _ := c.socket.WriteNow(fd, x.out.buf) // the next write returns the error, if there is one
	c.writeGuard.end()
	x.out.buf = x.out.buf[:copy(x.out.buf, x.out.buf[n:])]
	return len(x.out.buf) == 0
}

// A readYield decides whether a connection lets other goroutines run after it has sent
// a response and before it looks for the next request. Under load that request has
// arrived when the connection's turn comes again. Then it is read at once, which saves
// a read that returns nothing, and a wait. With little load a yield gains nothing; the
// longer it gains nothing, the rarer it becomes.
//
// The runtime polls sockets when no goroutine is ready, and otherwise only every 10 ms.
// Connections that never wait would delay all others by that, so that at most three of
// four requests are read after a yield, unless the request before waited for an upstream.
// With three of four under load a request needs 1.31 reads, with every second 1.54.
type readYield struct {
	skip     uint8 // responses until the next yield
	interval uint8 // responses between two yields that gain nothing
	busy     uint8 // yields since one was skipped, after requests that have not waited
}

// The bounds of interval and busy.
const maxYieldInterval, maxBusyYields = 63, 3

// due reports whether to yield after this response.
func (y *readYield) due() bool {
	if y.skip > 0 {
		y.skip--
		return false
	}
	return true
}

// found is called after a yield if there was something to read.
func (y *readYield) found() { y.interval = 0 }

// foundNothing is called after a yield if there was nothing to read.
func (y *readYield) foundNothing() {
	y.interval = min(2*y.interval+1, maxYieldInterval)
	y.skip = y.interval
}

// skipSome is called after a yield if the request before it has not waited.
func (y *readYield) skipSome() {
	if y.busy++; y.busy >= maxBusyYields {
		y.skip, y.busy = max(y.skip, 1), 0
	}
}
