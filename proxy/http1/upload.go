package http1

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// uploadEndWait is how long Relay waits for an upload that is sending the end of the
// request. A response usually arrives after that end, so that the upload is done and
// only its goroutine has not been scheduled yet.
const uploadEndWait = 50 * time.Millisecond

// An upload sends the rest of a request body on a goroutine of its own, while the
// caller waits for the response or reads it.
type upload struct {
	running      bool          // a goroutine was started, and stopUpload has not been called since
	sentWithHead bool          // the whole body was sent together with the head
	done         chan struct{} // receives one value when the goroutine ends; empty between two bodies
	buf          []byte
	sendingEnd   atomic.Bool // the request body was read to its end, which is being sent

	mu       sync.Mutex  // guards the fields below, and read deadlines while the goroutine runs
	headConn *clientConn // gets a read deadline when the body was sent; nil after the head was received
	sent     bool        // the whole body was sent
	failed   bool        // the call has failed: reads must not be unblocked again by a new deadline
}

// appendBufferedBody appends the body to the head if all of it has been read already
// and fits into the buffer.
func (c *Call) appendBufferedBody() {
	b := c.requestBody
	if c.expectsContinue() || b.err != nil && b.err != io.EOF ||
		b.framing.Kind == FixedLength && b.bytesLeft > int64(len(b.in.unread())) {
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
			return // the upload gets the same error
		case c.framing.Kind == Chunked:
			c.out.buf = appendChunk(c.out.buf, data)
		default:
			c.out.buf = append(c.out.buf, data...)
		}
	}
}

// appendGivenBody appends the body that was passed to SetBody.
func (c *Call) appendGivenBody() {
	if c.framing.Kind == Chunked {
		c.out.buf = appendChunk(c.out.buf, c.givenBody)
	} else {
		c.out.buf = append(c.out.buf, c.givenBody...)
	}
	c.out.buf = c.appendBodyEnd(c.out.buf)
	c.upload.sentWithHead = true
}

// appendBodyEnd appends the last chunk and the trailer section if the body is chunked.
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

// startUpload starts a goroutine that sends the rest of the body.
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
	own := false
	if c.framing.Kind == Chunked {
		up.buf, own = c.chunkBuffer()
	}
	err := c.sendBody()
	if own {
		c.client.buffers.put(up.buf)
	}
	up.mu.Lock()
	up.sent = err == nil
	switch {
	case err == nil && up.headConn != nil:
		up.headConn.setReadDeadline(c.client.ResponseTimeout)
		if c.abortedOr(nil) != nil { // see awaitResponse
			_ = c.conn.net.SetReadDeadline(pastTime())
		}
	case err != nil && (c.requestBodyErr() != nil || timedOut(err) && up.headConn != nil):
		up.failed = true
		_ = c.conn.net.SetReadDeadline(pastTime())
	}
	up.mu.Unlock()
	up.done <- struct{}{}
}

// sendBody sends the rest of the body.
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
			c.conn.setWriteDeadline(c.conn.pool.client.now())
			if _, err := c.conn.write(piece); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// awaitHead prepares for reading the head of the response on u. Its timeout starts when
// the upload has ended.
func (up *upload) awaitHead(u *clientConn) {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.headConn = u
	switch {
	case up.failed: // the upload failed before awaitHead was called
	case up.sent:
		u.setReadDeadline(u.pool.client.ResponseTimeout)
	default:
		u.setReadDeadline(0)
	}
}

// isSent reports whether the whole body was sent.
func (up *upload) isSent() bool {
	up.mu.Lock()
	defer up.mu.Unlock()
	return up.sent
}

// setReadDeadline sets the deadline for reading the response, unless the upload has
// failed and thereby ended the call.
func (c *Call) setReadDeadline(timeout time.Duration) {
	up := &c.upload
	if !up.running {
		c.conn.setReadDeadline(timeout)
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	if !up.failed {
		c.conn.setReadDeadline(timeout)
	}
}

// headReceived is called when the final head has been read. The upload sets no
// deadlines after that.
func (up *upload) headReceived() {
	if !up.running {
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	up.headConn = nil
}

// pollUpload calls stopUpload if the upload has ended or is about to end.
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

// stopUpload waits for the upload. If it has not ended, stopUpload aborts it: either
// the response is complete without the rest of the request, or the call has failed.
func (c *Call) stopUpload() {
	if !c.upload.running {
		return
	}
	select {
	case <-c.upload.done:
	default:
		c.cancelBodyRead()
		c.conn.close() // the rest of the request is missing on this connection
		<-c.upload.done
	}
	c.upload.running, c.upload.headConn = false, nil
	c.setUploading(false)
	c.requestWritten = c.upload.sent
}
