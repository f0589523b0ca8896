package http1

import (
	"cmp"
	"errors"
	"io"
	"time"
)

// Send sends the request of c and returns when the head of the final response has been
// read. The error is a *CallError, or ErrOutgoing if the request is invalid. If a
// reused connection turns out to have been closed by the upstream, Send repeats the
// request on another connection if that is safe; see CallError.Retryable. Retries on
// another pool are up to the caller. While Send waits, the client of the exchange is
// monitored, and the call is aborted if it is gone.
func (p *Pool) Send(c *Call) error { return p.SendAt(c, time.Now()) }

// SendAt is Send for a caller that has just read the clock.
func (p *Pool) SendAt(c *Call, began time.Time) error {
	if err := c.encodeRequest(); err != nil {
		return err
	}
	c.pool = p
	if c.x != nil {
		c.x.MonitorClient(c)
	}
	now := began.Sub(p.client.epoch)
	u := p.get(c, now)
	for {
		var callErr *CallError
		if u == nil {
			if u, callErr = p.dial(c); callErr != nil {
				return callErr
			}
		}
		if callErr = c.attempt(u, now); callErr == nil {
			return nil
		}
		c.stopUpload()
		c.releaseConn()
		if !callErr.Reused || !callErr.Retryable(c.method) {
			return callErr
		}
		c.prepareRetry()
		if u = nil; errors.Is(callErr.Err, errStale) {
			u = p.get(c, now)
		}
	}
}

// canWriteAtOnce reports whether the request can be sent on u with a reuseAttempt: u is
// a reused plain socket or TLS over one, and all of the request is in c.out.
func (c *Call) canWriteAtOnce(u *clientConn) bool {
	return u.socket.CanReadNow() && u.reused && (c.requestBody == nil || c.upload.sentWithHead)
}

// prepareRetry clears what is left of an earlier attempt.
func (c *Call) prepareRetry() {
	c.in.release()
	c.Response.Reset()
	c.requestWritten, c.responseStarted, c.switched = false, false, false
}

// encodeRequest completes the head, and appends the body if it is buffered and short.
func (c *Call) encodeRequest() error {
	if c.encoded {
		c.prepareRetry()
		return nil
	}
	if c.out.err != nil {
		return c.out.err
	}
	if b := c.requestBody; b != nil && b.maxBytes > 0 && b.framing.Length > b.maxBytes {
		b.err = ErrBodyTooLarge
		return &CallError{Phase: ReadingRequestBody, Err: b.err}
	}
	c.framing = Framing{NoBody, -1}
	if c.requestBody != nil {
		c.framing = outgoingFraming(message{minor: 1}, c.requestBody.framing)
		if c.givenBody != nil && c.framing.Kind == FixedLength {
			c.framing.Length = int64(len(c.givenBody))
		}
	} else if c.declaresNoBody() {
		c.framing.Length = 0
	}
	c.out.addFraming(c.framing)
	switch {
	case c.upgrade != "" && c.requestBody != nil:
		return ErrOutgoing
	case c.upgrade != "":
		c.out.add("Connection", "Upgrade")
		c.out.add("Upgrade", c.upgrade)
	case c.acceptTrailers:
		c.out.add("Connection", "TE")
		c.out.add("TE", "trailers")
	}
	c.out.end()
	c.encoded, c.headLen = true, len(c.out.buf)
	if len(c.savedBody) > 0 {
		c.out.buf = append(c.out.buf, c.savedBody...)
	}
	switch {
	case c.requestBody == nil || c.upload.sentWithHead:
	case c.givenBody != nil && c.requestBody.done():
		c.appendGivenBody()
	case c.givenBody != nil, c.savedBody == nil && c.requestBody.received > 0:
		// A part of the body was read and not passed to SetBody.
		return &CallError{Phase: ReadingRequestBody, Err: cmp.Or(c.requestBodyErr(), error(ErrOutgoing))}
	default:
		c.appendBufferedBody()
	}
	return nil
}

// attempt sends the request on u and reads the head of the response. now is the time
// when the first attempt began.
func (c *Call) attempt(u *clientConn, now time.Duration) *CallError {
	c.conn = u
	c.in.from, c.in.pool = u.net, &c.client.buffers
	c.activeConn.Store(u)
	if c.x != nil {
		c.x.waited = true
	}
	sent := 0
	if c.canWriteAtOnce(u) {
		u.setReadDeadlineAt(now, c.client.ResponseTimeout)
		if u.tls {
			u.setWriteDeadline(now) // TLS waits until the socket has accepted all of it
		}
		if err := c.abortedOr(nil); err != nil { // see awaitResponse
			return c.newError(err)
		}
		var callErr *CallError
		if sent, callErr = c.sendReused(u); callErr != nil {
			return callErr
		}
	}
	if sent < len(c.out.buf) {
		u.setWriteDeadline(c.client.now())
		if err := c.abortedOr(nil); err != nil { // see awaitResponse
			return c.newError(err)
		}
		n, err := u.write(c.out.buf[sent:])
		if err != nil {
			f := c.newError(err)
			f.RequestSent = sent+n > 0
			return f
		}
	}
	if c.requestWritten = c.requestBody == nil || c.upload.sentWithHead; !c.requestWritten {
		if c.expectsContinue() {
			return c.awaitContinue()
		}
		c.startUpload()
	}
	return c.awaitResponse()
}

// newError returns the CallError for err while the request is being sent.
func (c *Call) newError(err error) *CallError {
	f := &CallError{
		Phase: SendingRequest, Err: c.abortedOr(err), Reused: c.conn.reused,
		RequestSent: true, ResponseStarted: c.responseStarted,
	}
	c.stopUpload()
	f.BodyConsumed = c.bodyConsumed || c.sourceReader.stopped.Load()
	if cause := c.requestBodyErr(); cause != nil {
		f.Phase, f.Err = ReadingRequestBody, cause
	}
	return f
}

// requestBodyErr returns why reading the request body failed. It returns nil if it has
// not failed, or if the read was canceled.
func (c *Call) requestBodyErr() error {
	if c.requestBody == nil || c.requestBody.err == io.EOF || errors.Is(c.requestBody.err, ErrBodyReadCanceled) {
		return nil
	}
	return c.requestBody.err
}

// awaitResponse reads heads until the final one.
func (c *Call) awaitResponse() *CallError {
	switch {
	case !c.requestWritten:
		c.upload.awaitHead(c.conn)
	case len(c.in.unread()) == 0: // otherwise sendReused has set the deadline
		c.conn.setReadDeadline(c.client.ResponseTimeout)
	}
	for {
		if err := c.abortedOr(nil); err != nil { // setting the deadline may have overwritten the one set by Abort
			return c.newError(err)
		}
		if err := c.readHead(); err != nil {
			return c.newError(err)
		}
		switch status := c.Response.Status; {
		case status == 101:
			return c.checkUpgrade()
		case status >= 200:
			c.upload.headReceived()
			if c.x != nil && c.requestWritten {
				c.x.out.takeBuffer(&c.out) // one buffer serves first for the request and then for the response
			}
			c.beginBody()
			return nil
		}
		if err := c.relayInterim(); err != nil {
			return c.newError(err)
		}
		if err := c.restartResponseTimeout(); err != nil {
			return c.newError(err)
		}
	}
}

// beginBody is called when the head of the final response has been read.
func (c *Call) beginBody() {
	c.lastRead = c.client.now()
	c.body.open(&c.in, c, c.Response.Framing, &c.client.Limits)
}

// awaitContinue waits for the response to Expect: 100-continue. It sends the body when
// 100 Continue arrives or ExpectContinueTimeout has passed (RFC 9110 section 10.1.1).
// Other interim responses do not restart that timeout.
func (c *Call) awaitContinue() *CallError {
	c.conn.setReadDeadline(c.client.ExpectContinueTimeout)
	for proceed := false; !proceed; {
		err := c.abortedOr(nil) // see awaitResponse
		if err == nil {
			err = c.readHead()
		}
		switch {
		case timedOut(err) && c.abortedOr(nil) == nil:
			proceed = true // awaitResponse reads the rest if a part of a head has arrived
			continue
		case err != nil:
			return c.newError(err)
		case c.Response.Status == 101:
			return c.newError(ErrUnexpectedUpgrade)
		case c.Response.Status >= 200:
			c.beginBody()
			return nil
		}
		proceed = c.Response.Status == 100
		if err := c.relayInterim(); err != nil {
			return c.newError(err)
		}
	}
	if c.x != nil { // a Source needs no such message
		if err := c.x.Continue(); err != nil {
			return c.newError(err)
		}
	}
	c.startUpload()
	return c.awaitResponse()
}

// readHead reads and parses one head.
func (c *Call) readHead() error {
	c.in.ensureBuffer()
	for {
		if rest := c.in.unread(); len(rest) > 0 {
			c.responseStarted = true
			n, err := c.Response.Parse(rest, c.method, &c.client.Limits)
			if err != nil {
				return err
			}
			if n > 0 {
				c.in.retainHead(n)
				return nil
			}
			c.in.growHead(c.client.Limits.Head)
		}
		if err := c.in.fill(); err != nil {
			if errors.Is(err, io.EOF) && c.responseStarted {
				err = ErrTruncated
			}
			return err
		}
	}
}

// checkUpgrade checks that a 101 response switches to the requested protocol.
func (c *Call) checkUpgrade() *CallError {
	to, count := c.Response.Fields.firstOf(Upgrade)
	if c.upgrade == "" || count != 1 || !sameToken(to, c.upgrade) || c.Response.Fields.options&optionUpgrade == 0 {
		return c.newError(ErrUnexpectedUpgrade)
	}
	c.switched, c.lastRead = true, c.client.now()
	return nil
}

func sameToken(a, b string) bool { return len(a) == len(b) && equalFold([]byte(a), b) }

// fillBody implements bodyFiller. It reads more of the response body.
func (c *Call) fillBody(b *Body) error {
	if b.flusher != nil {
		if c.flushErr = b.flusher.Flush(); c.flushErr != nil {
			return c.flushErr
		}
	}
	c.setReadDeadline(c.client.BodyTimeout)
	if err := c.abortedOr(nil); err != nil { // see awaitResponse
		return err
	}
	if err := b.fill(); err != nil {
		return c.abortedOr(err)
	}
	c.waited = true
	return nil
}
