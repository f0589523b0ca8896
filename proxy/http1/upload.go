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

// A Source is a request body that does not come from an Exchange.
type Source struct {
	Reader io.Reader
	Length int64 // -1 if unknown
	// Stop makes a pending read return, because the rest of the body is not needed. It
	// is called by another goroutine than the one that reads.
	Stop func()
	// Trailer, if it is set, adds the trailer fields to h. It is called after the whole
	// body has been read, and only if Length is unknown.
	Trailer func(h *Head)
	// Expects makes the call wait for 100 Continue before it reads the body. The caller
	// must add the Expect field.
	Expects bool
}

// A sourceReader connects a Source to a Body.
type sourceReader struct {
	Source
	in      input
	body    Body
	stopped atomic.Bool // Stop was called
}

// fillBody implements bodyFiller. After Stop the error is ErrBodyReadCanceled, so that it is not attributed to the
// client.
func (s *sourceReader) fillBody(b *Body) error {
	err := b.fill()
	if err != nil && err != io.EOF && s.stopped.Load() {
		return ErrBodyReadCanceled
	}
	return err
}

// maxChunkFraming is how many bytes frame a chunk that is not longer than a buffer.
const maxChunkFraming = 8

// SetSource sets the body of a request that has no exchange. It must be called before
// Send. The caller must check the names of trailer fields; fields that cannot be sent
// are dropped.
func (c *Call) SetSource(s Source) {
	f := Framing{FixedLength, s.Length}
	if s.Length < 0 {
		f = Framing{UntilClose, -1}
	}
	g := &c.sourceReader
	g.Source = s
	g.in = input{from: s.Reader, pool: &c.client.buffers}
	if s.Length < 0 || s.Length > headBufferSize {
		g.in.bodyBuf = g.in.pool.getBody()
		g.in.buf = g.in.bodyBuf
	}
	if s.Length < 0 {
		g.in.buf = g.in.buf[:len(g.in.buf)/2-maxChunkFraming] // the other half is for the chunks that are sent
	}
	g.in.ensureBuffer()
	g.body.open(&g.in, g, f, &c.client.Limits)
	c.requestBody = &g.body
}

// chunkBuffer returns a buffer for the chunks in which the body is sent, and whether it is to be put
// back into the pool.
func (c *Call) chunkBuffer() (b []byte, own bool) {
	if g := &c.sourceReader; c.requestBody == &g.body && g.Length < 0 {
		return g.in.bodyBuf[len(g.in.bodyBuf)/2:], false
	}
	return c.client.buffers.getBody(), true
}

// declaresNoBody reports whether a request without a body sends Content-Length: 0. It
// does so if the client did. Without a client it does so for methods that usually have
// a body (RFC 9110 section 8.6).
func (c *Call) declaresNoBody() bool {
	if c.x != nil {
		return c.x.Request.Framing.Length == 0
	}
	return c.method == "POST" || c.method == "PUT" || c.method == "PATCH"
}

// expectsContinue reports whether the body is sent only after the upstream has
// responded with 100 Continue.
func (c *Call) expectsContinue() bool {
	if c.x != nil {
		return c.x.Expects()
	}
	return c.requestBody != nil && c.sourceReader.Expects
}

// cancelBodyRead makes a pending read of the request body return.
func (c *Call) cancelBodyRead() {
	switch {
	case c.x != nil:
		c.x.CancelBodyRead()
	case c.sourceReader.Stop != nil:
		c.sourceReader.stopped.Store(true)
		c.sourceReader.Stop()
	}
}

// setUploading records whether an upload goroutine reads the request body.
func (c *Call) setUploading(now bool) {
	if c.x != nil {
		c.x.uploading = now
	}
}
