package http1

import "time"

// fillBody implements bodyFiller. It reads more of the request body. Timeouts.Body
// counts only time spent waiting for the client, so a slow upstream does not make the
// client time out. It does not apply after the response has started: client and
// upstream may then exchange data at any pace.
func (c *conn) fillBody(b *Body) error {
	x := c.x
	if b.flusher != nil {
		if err := b.flusher.Flush(); err != nil {
			return err
		}
	}
	if err := x.Continue(); err != nil {
		return err
	}
	began, err := c.beginBodyRead(b)
	if err != nil {
		return err
	}
	err = b.fill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyReading = false
	b.waited += c.server.now() - began
	if err != nil && c.bodyCanceled {
		return ErrBodyReadCanceled
	}
	return err
}

// remaining returns the number of bytes of a body that are still to be read, or -1 if
// it is unknown.
func remaining(b *Body) int64 {
	if b.framing.Kind == FixedLength {
		return b.bytesLeft
	}
	return -1
}

func (c *conn) beginBodyRead(b *Body) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bodyCanceled {
		return 0, ErrBodyReadCanceled
	}
	now := c.server.now()
	c.bodyReading = true
	wait := c.server.Timeouts.Body
	if c.bodyUnbounded || wait == 0 {
		c.clearReadDeadline()
		return now, nil
	}
	bonus := time.Duration(min(b.received, 1<<40)) * (time.Second / minBodyRate)
	c.setReadDeadline(now, max(min(wait, wait+bonus-b.waited), time.Nanosecond))
	return now, nil
}

// startResponse removes the timeout for the request body because the response has
// started.
func (c *conn) startResponse() {
	if c.x.Body() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyUnbounded = true
	if c.bodyReading && !c.bodyCanceled {
		c.clearReadDeadline()
	}
}

// CancelBodyRead makes a pending read of the request body return with
// ErrBodyReadCanceled, and all later ones. The connection is closed after this
// exchange, unless the whole body was read before. It is safe for concurrent use.
func (e *Exchange) CancelBodyRead() {
	c := e.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Body() == nil || c.bodyCanceled {
		return
	}
	c.bodyCanceled = true
	if c.bodyReading {
		c.interruptRead()
	}
}
