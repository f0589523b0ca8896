package http1

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// uploadEndWait is how long a response waits for the end of the request to be sent,
// once that is in progress. It most likely answers that very end, so that it
// has been sent already and only its sender has not noticed yet.
const uploadEndWait = 50 * time.Millisecond

// An upload sends what is left of a request's body while its caller waits for the
// response, or reads it.
type upload struct {
	running      bool          // there is a goroutine, or was, that nobody has waited for
	sentWithHead bool          // the body has been sent behind the head
	done         chan struct{} // holds one when the goroutine has ended
	buf          []byte
	sendingEnd   atomic.Bool // the client's body has been read whole, and its end is being sent

	mu       sync.Mutex  // guards what follows, and setting deadlines for reading meanwhile
	headConn *clientConn // to bound the wait for a head on when the body is sent; nil if there is a head
	sent     bool        // the body was sent whole
	failed   bool        // nothing can come of it any more: reading has ended for good
}

// reset makes up ready for another body, and keeps the channel.
func (up *upload) reset() {
	up.running, up.sentWithHead, up.buf = false, false, nil
	if up.done != nil { // there was a goroutine, for this body or for one before
		up.sendingEnd.Store(false)
		up.headConn, up.sent = nil, false
	}
}

// appendBufferedBody puts a body behind the head that is at hand and fits there.
func (c *Call) appendBufferedBody() {
	b := c.requestBody
	if c.expectsContinue() || b.err != nil && b.err != io.EOF || b.framing.Kind == FixedLength && b.bytesLeft > int64(len(b.in.unread())) {
		return
	}
	for c.framing.Kind == FixedLength || c.framing.Kind == Chunked {
		if len(c.out.buf)+len(b.in.unread())+32 > cap(c.out.buf) {
			return
		}
		data, err := b.nextBuffered()
		switch {
		case errors.Is(err, io.EOF):
			c.out.buf = c.appendBodyEnd(c.out.buf)
			c.upload.sentWithHead = true
			return
		case err != nil, len(data) == 0:
			return // the upload will meet it again
		case c.framing.Kind == Chunked:
			c.out.buf = appendChunk(c.out.buf, data)
		default:
			c.out.buf = append(c.out.buf, data...)
		}
	}
}

// appendGivenBody puts a body behind the head that was read before.
func (c *Call) appendGivenBody() {
	if c.framing.Kind == Chunked {
		c.out.buf = appendChunk(c.out.buf, c.givenBody)
	} else {
		c.out.buf = append(c.out.buf, c.givenBody...)
	}
	c.out.buf = c.appendBodyEnd(c.out.buf)
	c.upload.sentWithHead = true
}

// appendBodyEnd appends what ends the body.
func (c *Call) appendBodyEnd(dst []byte) []byte {
	if c.framing.Kind != Chunked {
		return dst
	}
	h := Head{buf: append(dst, lastChunk...)}
	if c.KeepRequestTrailer != nil {
		c.requestBody.trailer.DropForbiddenTrailers()
		c.requestBody.trailer.DropFunc(func(f Field) bool { return !c.KeepRequestTrailer(f) })
		h.AddFields(&c.requestBody.trailer)
	}
	if c.sourceReader.Trailer != nil {
		c.sourceReader.Trailer(&h)
	}
	h.end()
	return h.buf
}

// startUpload begins to send the rest of the body on a goroutine of its own.
func (c *Call) startUpload() {
	up := &c.upload
	if up.done == nil {
		up.done = make(chan struct{}, 1)
	}
	up.running, up.sent, up.failed = true, false, false
	up.sendingEnd.Store(false)
	c.setUploading(true)
	go c.runUpload()
}

func (c *Call) runUpload() {
	up := &c.upload
	up.buf = c.client.buffers.getBody()
	err := c.sendBody()
	c.client.buffers.put(up.buf)
	up.mu.Lock()
	up.sent = err == nil
	switch {
	case err == nil && up.headConn != nil:
		up.headConn.setReadDeadline(c.client.ResponseTimeout)
		if c.abortedOr(nil) != nil { // see await
			_ = c.conn.net.SetReadDeadline(pastTime())
		}
	case err != nil && (c.requestBodyErr() != nil || timedOut(err) && up.headConn != nil):
		up.failed = true
		_ = c.conn.net.SetReadDeadline(pastTime())
	}
	up.mu.Unlock()
	up.done <- struct{}{}
}

// sendBody sends the body until its end.
func (c *Call) sendBody() error {
	up := &c.upload
	for {
		data, err := c.requestBody.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		piece := data
		switch {
		case err != nil:
			piece = c.appendBodyEnd(up.buf[:0])
		case c.framing.Kind == Chunked:
			piece = appendChunk(up.buf[:0], data)
		}
		c.bodyConsumed = c.bodyConsumed || len(data) > 0
		up.sendingEnd.Store(c.requestBody.done())
		if len(piece) > 0 {
			c.conn.setWriteDeadline()
			if _, err := c.conn.net.Write(piece); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// awaitHead says that a head is waited for on u, for which the time counts from
// the end of the upload.
func (up *upload) awaitHead(u *clientConn) {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.headConn = u
	switch {
	case up.failed: // it failed before this goroutine came here
	case up.sent:
		u.setReadDeadline(u.pool.client.ResponseTimeout)
	default:
		u.setReadDeadline(0)
	}
}

// setReadDeadline bounds reading of the response, which an upload that fails ends at
// once.
func (c *Call) setReadDeadline(within time.Duration) {
	up := &c.upload
	if !up.running {
		c.conn.setReadDeadline(within)
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	if !up.failed {
		c.conn.setReadDeadline(within)
	}
}

// headReceived says that the final head has come: what is read from now on has time
// limits of its own.
func (up *upload) headReceived() {
	if !up.running {
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	up.headConn = nil
}

// pollUpload takes note of an upload that has ended, or is about to.
func (c *Call) pollUpload() {
	up := &c.upload
	if !up.running {
		return
	}
	wait := time.Duration(0)
	if up.sendingEnd.Load() {
		wait = uploadEndWait
	}
	select {
	case <-up.done:
		up.done <- struct{}{}
		c.stopUpload()
	case <-time.After(wait):
	}
}

// stopUpload waits for the upload, and stops it if it has not ended: the response
// is whole without it, or there will be none.
func (c *Call) stopUpload() {
	if !c.upload.running {
		return
	}
	select {
	case <-c.upload.done:
	default:
		c.cancelBodyRead()
		c.conn.close() // it owes the rest of the request
		<-c.upload.done
	}
	c.upload.running, c.upload.headConn = false, nil
	c.setUploading(false)
	c.requestWritten = c.upload.sent
}
