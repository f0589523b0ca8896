package http1

import (
	"errors"
	"io"
	"time"
)

// Send makes the call over p and returns when the head of its final response is
// there, or with a *Fault. A connection that had been kept and was closed by the
// upstream at this moment is replaced by a new one, if that is safe; to make the
// call again over another pool is up to the caller. While it waits, the client
// is watched.
func (p *Pool) Send(c *Call) error {
	if err := c.frame(); err != nil {
		return err
	}
	c.pool = p
	if c.x != nil {
		c.x.Watch(c)
	}
	now := p.client.now()
	u := p.take(c, now)
	for {
		var fault *CallError
		if u == nil {
			if u, fault = p.dial(c); fault != nil {
				return fault
			}
		}
		if fault = c.attempt(u, now); fault == nil {
			return nil
		}
		c.endUpload()
		c.dropConn()
		if !fault.Reused || !fault.Retryable(c.method) {
			return fault
		}
		c.again()
		if u = nil; errors.Is(fault.Err, errStale) {
			u = p.take(c, now)
		}
	}
}

// startAttempt reports whether the whole request is at hand and u can take it at once.
func (c *Call) startAttempt(u *clientConn) bool {
	return u.raw != nil && u.used && (c.source == nil || c.upload.whole)
}

// again makes c ready to be sent once more.
func (c *Call) again() {
	c.in.release()
	c.Response.Reset()
	c.written, c.answered, c.switched = false, false, false
}

// frame ends the head, and puts the body behind it if it is short and at hand.
func (c *Call) frame() error {
	if c.framed {
		c.again()
		return nil
	}
	if c.out.err != nil {
		return c.out.err
	}
	if b := c.source; b != nil && b.most > 0 && b.framing.Length > b.most {
		b.err = ErrBodyTooLarge
		return &CallError{Phase: Uploading, Err: b.err}
	}
	c.framing = Framing{None, -1}
	if c.source != nil {
		c.framing = outgoingFraming(receiver{minor: 1}, c.source.framing)
	} else if c.declaresNoBody() {
		c.framing.Length = 0
	}
	c.out.frame(c.framing)
	switch {
	case c.upgrade != "" && c.source != nil:
		return ErrOutgoing
	case c.upgrade != "":
		c.out.add("Connection", "Upgrade")
		c.out.add("Upgrade", c.upgrade)
	case c.te:
		c.out.add("Connection", "TE")
		c.out.add("TE", "trailers")
	}
	c.out.end()
	c.framed, c.head = true, len(c.out.buf)
	c.out.buf = append(c.out.buf, c.atHand...)
	switch {
	case c.source == nil || c.upload.whole:
	case c.content != nil && c.source.done():
		c.appendContent()
	case c.content != nil, c.atHand == nil && c.source.got > 0:
		return ErrOutgoing // somebody has read some of the body, and not given back all of it
	default:
		c.appendAtHand()
	}
	return nil
}

// attempt sends the request over u and reads the head of the response. now is when
// the first attempt began.
func (c *Call) attempt(u *clientConn, now time.Duration) *CallError {
	c.conn = u
	c.in.from, c.in.memory = u.net, &c.client.memory
	if !c.uses(u) {
		return c.fault(ErrAborted)
	}
	sent := 0
	if c.startAttempt(u) {
		u.armReadAt(now, c.client.Response)
		if err := c.because(nil); err != nil { // see await
			return c.fault(err)
		}
		var fault *CallError
		if sent, fault = c.tryReused(u); fault != nil {
			return fault
		}
	}
	if sent < len(c.out.buf) {
		u.armWrite()
		n, err := u.net.Write(c.out.buf[sent:])
		if err != nil {
			f := c.fault(err)
			f.Wrote = sent+n > 0
			return f
		}
	}
	if c.written = c.source == nil || c.upload.whole; !c.written {
		if c.expectsContinue() {
			return c.expect()
		}
		c.startUpload()
	}
	return c.await()
}

// fault is what err is in this phase.
func (c *Call) fault(err error) *CallError {
	f := &CallError{Phase: SendingRequest, Err: c.because(err), Reused: c.conn.used, Wrote: true, Answered: c.answered}
	c.endUpload()
	f.Taken = c.taken
	if why := c.sourceErr(); why != nil {
		f.Phase, f.Err = Uploading, why
	}
	return f
}

// sourceErr is why the client's body could not be read, nil if it could so far or
// nobody wanted more.
func (c *Call) sourceErr() error {
	if c.source == nil || c.source.err == io.EOF || errors.Is(c.source.err, ErrStopped) {
		return nil
	}
	return c.source.err
}

// await reads heads until the final one. There is one time limit for all of them.
func (c *Call) await() *CallError {
	switch {
	case len(c.in.unread()) > 0: // ask has bounded it
	case c.written:
		c.conn.armRead(c.client.Response)
	default:
		c.upload.awaitHead(c.conn)
	}
	if err := c.because(nil); err != nil { // the deadline of Abort may have been overwritten
		return c.fault(err)
	}
	for interim := 0; ; interim++ {
		if err := c.readHead(); err != nil {
			return c.fault(err)
		}
		switch status := c.Response.Status; {
		case status == 101:
			return c.switchTo()
		case status >= 200:
			c.upload.headCame()
			c.body.open(&c.in, c, c.Response.Framing, &c.client.Limits)
			return nil
		case interim >= c.client.Limits.Interim:
			return c.fault(ErrInterim)
		default:
			c.interim()
		}
	}
}

// interim passes a 1xx response on, and makes room for the next head.
func (c *Call) interim() {
	switch {
	case c.Response.Status == 100:
	case c.Interim != nil:
		c.Interim(&c.Response)
	case c.x != nil:
		h := c.x.Interim(c.Response.Status)
		c.Response.Fields.Strip()
		h.AddFields(&c.Response.Fields)
		_ = c.x.SendInterim() // the final response will meet the same fate
	}
	c.in.next()
	c.Response.Reset()
}

// expect waits for the upstream to say whether it wants the body. After a while
// it gets it nevertheless.
func (c *Call) expect() *CallError {
	c.conn.armRead(c.client.Continue)
	err := c.because(nil) // see await
	if err == nil {
		err = c.readHead()
	}
	switch {
	case timedOut(err) && len(c.in.unread()) == 0 && c.because(nil) == nil:
	case err != nil:
		return c.fault(err)
	case c.Response.Status == 100:
		c.interim()
	case c.Response.Status < 200 && c.Response.Status != 101:
		c.interim()
		return c.expect()
	default:
		if c.Response.Status == 101 {
			return c.fault(ErrSwitch)
		}
		c.body.open(&c.in, c, c.Response.Framing, &c.client.Limits)
		return nil
	}
	if err := c.sendContinue(); err != nil {
		return c.fault(err)
	}
	c.startUpload()
	return c.await()
}

// readHead reads one head.
func (c *Call) readHead() error {
	c.in.open()
	for {
		if rest := c.in.unread(); len(rest) > 0 {
			c.answered = true
			n, err := c.Response.Parse(rest, c.method, &c.client.Limits)
			if err != nil {
				return err
			}
			if n > 0 {
				c.in.keepHead(n)
				return nil
			}
			c.in.growHead(c.client.Limits.Head)
		}
		if err := c.in.fill(); err != nil {
			if errors.Is(err, io.EOF) && c.answered {
				err = ErrCut
			}
			return err
		}
	}
}

// switchTo checks that a 101 is the one that was asked for.
func (c *Call) switchTo() *CallError {
	to, ok := c.Response.Fields.Value(Upgrade)
	if c.upgrade == "" || !ok || c.Response.Fields.count(Upgrade) != 1 || !sameToken(to, c.upgrade) ||
		!c.Response.Fields.hasToken(Connection, "upgrade") {
		return c.fault(ErrSwitch)
	}
	c.switched = true
	return nil
}

func sameToken(a, b string) bool { return len(a) == len(b) && equalFold([]byte(a), b) }

// feed implements feeder: it reads more of the response's body.
func (c *Call) feed(b *Body) error {
	if b.sink != nil {
		if err := b.sink.Flush(); err != nil {
			return err
		}
	}
	c.in.roomFor(bodyLeft(b))
	c.armRead(c.client.Idle)
	if err := c.because(nil); err != nil { // see await
		return err
	}
	if err := c.in.fill(); err != nil {
		return c.because(err)
	}
	return nil
}
