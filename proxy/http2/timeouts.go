package http2

import (
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// pingAfter is how long a client with requests in progress may be silent before it
	// gets a PING, and pingTimeout how long it may take to acknowledge that.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// errSilent reports that a client has sent nothing for too long.
var errSilent = errors.New("client is silent")

// beforeRead is called before each read that may wait. It begins the requests that were
// received, sends what is to be sent, and sets the deadline for the read.
func (c *conn) beforeRead() error {
	held := c.beginPending()
	now := time.Now()
	if c.waitBegan.IsZero() {
		c.waitBegan = now
	}
	timeout, err := c.beforeReadAt(now)
	if err != nil {
		return err
	}
	if held {
		timeout = resetPause
	}
	c.setReadDeadline(now, timeout)
	if c.interrupted.Swap(false) { // interruptRead may have set its deadline before this one
		c.deadline = time.Time{}
		return c.afterSilence(now)
	}
	return nil
}

// beforeReadAt sends what is to be sent, and returns the timeout for the read. If the
// client does not read, it waits until what was added to the output before has been sent,
// so that the answers to the frames of the client use little memory.
func (c *conn) beforeReadAt(now time.Time) (timeout time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
	for len(c.out.b) > 2*outputSize && c.err == nil {
		if !c.out.writing {
			c.flushLocked()
			continue
		}
		c.waitForRoom()
	}
	if idle := c.server.Timeouts.Idle; c.err == nil && c.ready && idle > 0 && c.isIdle() && now.Sub(c.idleSince) >= idle {
		return 0, errEnded // also if the client sends frames without requests
	}
	timeout = c.silenceLocked(now)
	if timeout <= 0 && c.err == nil {
		return 0, fmt.Errorf("%w: %w", errSilent, os.ErrDeadlineExceeded)
	}
	return timeout, c.err
}

// silenceLocked returns how long the connection may be silent before afterSilence decides what
// that means. It is not the timeout itself, so that the deadline need not be changed
// whenever a request begins or ends.
func (c *conn) silenceLocked(now time.Time) time.Duration {
	t := &c.server.Timeouts
	switch {
	case c.mayHaveHeaderTimeout():
		return t.Header - now.Sub(c.headBegan) // for all of it, however often some arrives
	case c.draining && c.isIdle():
		return drainWait
	case !c.pinged.IsZero():
		return pingTimeout
	case t.Idle > 0:
		return min(t.Idle, pingAfter)
	}
	return pingAfter
}

// mayHaveHeaderTimeout reports whether the client is in the middle of the preface or of a
// header block.
func (c *conn) mayHaveHeaderTimeout() bool {
	return (!c.ready || c.block.open) && c.server.Timeouts.Header > 0
}

// setReadDeadline sets the deadline for reading, unless it is less than an eighth of the
// timeout later than it should be.
func (c *conn) setReadDeadline(now time.Time, timeout time.Duration) {
	at := now.Add(timeout)
	if c.deadline.Before(at) || c.deadline.After(at.Add(timeout/8)) {
		c.deadline = at.Add(timeout / 8)
		_ = c.net.SetReadDeadline(c.deadline) // if it fails, so does the read
	}
}

// interruptRead makes the goroutine that reads notice a change. Any goroutine may call it.
func (c *conn) interruptRead() {
	c.interrupted.Store(true)
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
}

// afterSilence is called when the client has sent nothing until a deadline, or when the
// read was interrupted. It returns an error if the connection has to end.
func (c *conn) afterSilence(now time.Time) error {
	c.deadline = time.Time{}
	if len(c.pending) > 0 {
		return nil // they were held back only for a short time
	}
	t := &c.server.Timeouts
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := now.Sub(c.waitBegan)
	switch idle := c.isIdle(); {
	case c.err != nil:
		return c.err
	case c.mayHaveHeaderTimeout():
		if now.Sub(c.headBegan) >= t.Header {
			return fmt.Errorf("%w: %w", errSilent, os.ErrDeadlineExceeded)
		}
	case idle && c.draining:
		if now.Sub(c.idleSince) >= drainWait {
			return errEnded
		}
	case idle: // see beforeReadAt
	case !c.pinged.IsZero():
		if now.Sub(c.pinged) >= pingTimeout {
			return fmt.Errorf("%w: no acknowledgement of PING", errSilent)
		}
	case silent >= pingAfter:
		c.pinged = now
		_ = c.framer.WritePing(false, [8]byte{})
	}
	return nil
}
