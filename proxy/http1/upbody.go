package http1

import "time"

// feed implements feeder: it reads more of a request's body. Only time spent
// waiting for the client counts, so that a slow upstream costs no client its
// body; and none does once the response has begun: then the two may talk at
// whatever pace they like.
func (c *conn) feed(b *Body) error {
	x := c.x
	if b.sink != nil {
		if err := b.sink.Flush(); err != nil {
			return err
		}
	}
	if err := x.Continue(); err != nil {
		return err
	}
	x.in.roomFor(bodyLeft(b))
	began, err := c.beginRead(b)
	if err != nil {
		return err
	}
	err = x.in.fill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = false
	b.waited += c.server.now() - began
	if err != nil && c.stop {
		return ErrStopped
	}
	return err
}

// bodyLeft is how much of a body is still to come, -1 if that is unknown.
func bodyLeft(b *Body) int64 {
	if b.framing.Kind == Length {
		return b.left
	}
	return -1
}

func (c *conn) beginRead(b *Body) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop {
		return 0, ErrStopped
	}
	now := c.server.now()
	c.reads = true
	wait := c.server.Timeouts.Body
	if c.free || wait == 0 {
		c.disarmRead()
		return now, nil
	}
	bonus := time.Duration(min(b.got, 1<<40)) * (time.Second / minBodyRate)
	c.armRead(now, max(min(wait, wait+bonus-b.waited), time.Nanosecond))
	return now, nil
}

// answerBegins lets a read of the body that is in progress take any time.
func (c *conn) answerBegins() {
	if c.x.Body() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = true
	if c.reads && !c.stop {
		c.disarmRead()
	}
}

// StopBody ends reading of the request's body, also by another goroutine. The
// connection ends after this exchange, unless the body was whole already.
func (x *Exchange) StopBody() {
	c := x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.Body() == nil || c.stop {
		return
	}
	c.stop = true
	if c.reads {
		c.interrupt()
	}
}
