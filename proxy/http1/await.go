package http1

import (
	"cmp"
	"io"
	"time"
)

// take gives c an exchange with a buffer, unless it has one.
func (c *conn) take() {
	if c.x != nil {
		c.x.in.open()
		return
	}
	x := c.server.exchanges.Get().(*Exchange)
	x.conn = c
	x.in.from, x.in.memory = c.net, &c.server.memory
	x.in.open()
	c.x = x
}

// giveBack takes the exchange and its buffers from c, which has nothing to do.
func (c *conn) giveBack() {
	x := c.x
	if x == nil {
		return
	}
	c.x = nil
	x.in.rest()
	x.out.rest(&c.server.memory)
	x.forget()
	c.server.exchanges.Put(x)
}

// waitForRequest waits for the first bytes of a request. A connection that waits holds no
// buffer. The error is io.EOF if the connection has ended in order.
func (c *conn) waitForRequest() error {
	if c.x != nil && len(c.x.in.unread()) > 0 {
		return nil
	}
	if !c.state.CompareAndSwap(busy, idle) {
		return errEnded
	}
	now := c.lately
	if c.lately = 0; now == 0 {
		now = c.server.now()
	}
	c.armRead(now, c.firstByteTimeout())
	err := c.readSome()
	switch {
	case !c.state.CompareAndSwap(idle, busy):
		return c.lateRequest(err)
	case timedOut(err):
		return io.EOF
	}
	return err
}

// lateRequest is await for a connection that Shutdown ended while it waited, which came
// to err: a request that came at that very moment is answered, as the last one.
func (c *conn) lateRequest(err error) error {
	there := err == nil || timedOut(err) && look(c.fd) == Talking
	if !there || !c.state.CompareAndSwap(ended, busy) {
		return errEnded
	}
	c.mu.Lock()
	c.armed.at = -1
	c.armRead(c.server.now(), cmp.Or(c.server.Timeouts.Header, c.server.Timeouts.Idle))
	c.mu.Unlock()
	if err == nil {
		return nil
	}
	return c.readSome()
}

// firstByteTimeout is how long the first bytes of a request may take. A connection that
// has not brought any yet is in the middle of a header.
func (c *conn) firstByteTimeout() time.Duration {
	if c.fresh && c.server.Timeouts.Header > 0 {
		return c.server.Timeouts.Header
	}
	return c.server.Timeouts.Idle
}

// readSome reads what there is into the buffer of an exchange.
func (c *conn) readSome() error {
	if c.reader != nil {
		if err := c.reader.Read(c.first); err != nil {
			return err
		}
		if c.read.err == nil {
			c.x.in.w += c.read.n
		}
		return c.read.err
	}
	c.giveBack()
	for {
		n, err := c.net.Read(c.one[:])
		if n > 0 {
			c.take()
			c.x.in.w += copy(c.x.in.buf, c.one[:n])
			return nil
		}
		if err != nil {
			return err
		}
	}
}
