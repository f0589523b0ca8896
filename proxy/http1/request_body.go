package http1

import "time"

// fillBody implements feeder: it reads more of a request's body. Only time spent
// waiting for the client counts, so that a slow upstream costs no client its
// body; and none does once the response has begun: then the two may talk at
// whatever pace they like.
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
	x.in.makeRoom(remaining(b))
	began, err := c.beginBodyRead(b)
	if err != nil {
		return err
	}
	err = x.in.fill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyReading = false
	b.waited += c.server.now() - began
	if err != nil && c.bodyCanceled {
		return ErrBodyReadCanceled
	}
	return err
}

// remaining is how much of a body is still to come, -1 if that is unknown.
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

// startResponse lets a read of the body that is in progress take any time.
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

// CancelBodyRead ends reading of the request's body, also by another goroutine. The
// connection ends after this exchange, unless the body was whole already.
func (x *Exchange) CancelBodyRead() {
	c := x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.Body() == nil || c.bodyCanceled {
		return
	}
	c.bodyCanceled = true
	if c.bodyReading {
		c.interruptRead()
	}
}
