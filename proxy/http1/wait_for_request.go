package http1

import (
	"io"
	"os"
	"runtime"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
)

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
