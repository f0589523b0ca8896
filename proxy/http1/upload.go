package http1

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// lastPiece is how long a response waits for the end of the request to be sent,
// once that is in progress. It most likely answers that very end, so that it
// has been sent already and only its sender has not noticed yet.
const lastPiece = 50 * time.Millisecond

// An upload sends what is left of a request's body while its caller waits for the
// response, or reads it.
type upload struct {
	running bool          // there is a goroutine, or was, that nobody has waited for
	whole   bool          // the body has been sent behind the head
	done    chan struct{} // holds one when the goroutine has ended
	buf     []byte
	last    atomic.Bool // the client's body has been read whole, and its end is being sent

	mu     sync.Mutex  // guards what follows, and setting deadlines for reading meanwhile
	conn   *clientConn // to bound the wait for a head on when the body is sent; nil if there is a head
	sent   bool        // the body was sent whole
	futile bool        // nothing can come of it any more: reading has ended for good
}

// reset makes up ready for another body, and keeps the channel.
func (up *upload) reset() {
	up.running, up.whole, up.buf = false, false, nil
	if up.done != nil { // there was a goroutine, for this body or for one before
		up.last.Store(false)
		up.conn, up.sent = nil, false
	}
}

// appendAtHand puts a body behind the head that is at hand and fits there.
func (c *Call) appendAtHand() {
	b := c.source
	if c.expectsContinue() || b.err != nil && b.err != io.EOF || b.framing.Kind == Length && b.left > int64(len(b.in.unread())) {
		return
	}
	for c.framing.Kind == Length || c.framing.Kind == Chunked {
		if len(c.out.buf)+len(b.in.unread())+32 > cap(c.out.buf) {
			return
		}
		data, err := b.ready()
		switch {
		case errors.Is(err, io.EOF):
			c.out.buf = c.appendLast(c.out.buf)
			c.upload.whole = true
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

// appendContent puts a body behind the head that was read before.
func (c *Call) appendContent() {
	if c.framing.Kind == Chunked {
		c.out.buf = appendChunk(c.out.buf, c.content)
	} else {
		c.out.buf = append(c.out.buf, c.content...)
	}
	c.out.buf = c.appendLast(c.out.buf)
	c.upload.whole = true
}

// appendLast appends what ends the body.
func (c *Call) appendLast(dst []byte) []byte {
	if c.framing.Kind != Chunked {
		return dst
	}
	h := Head{buf: append(dst, lastChunk...)}
	if c.KeepTrailer != nil {
		c.source.trailer.DropUntrailed()
		c.source.trailer.DropFunc(func(f Field) bool { return !c.KeepTrailer(f) })
		h.AddFields(&c.source.trailer)
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
	up.running, up.sent, up.futile = true, false, false
	up.last.Store(false)
	c.uploads(true)
	go c.runUpload()
}

func (c *Call) runUpload() {
	up := &c.upload
	up.buf = c.client.memory.bulk()
	err := c.sendBody()
	c.client.memory.giveBack(up.buf)
	up.mu.Lock()
	up.sent = err == nil
	switch {
	case err == nil && up.conn != nil:
		up.conn.armRead(c.client.Response)
		if c.because(nil) != nil { // see await
			_ = c.conn.net.SetReadDeadline(passed())
		}
	case err != nil && (c.sourceErr() != nil || timedOut(err) && up.conn != nil):
		up.futile = true
		_ = c.conn.net.SetReadDeadline(passed())
	}
	up.mu.Unlock()
	up.done <- struct{}{}
}

// sendBody sends the body until its end.
func (c *Call) sendBody() error {
	up := &c.upload
	for {
		data, err := c.source.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		piece := data
		switch {
		case err != nil:
			piece = c.appendLast(up.buf[:0])
		case c.framing.Kind == Chunked:
			piece = appendChunk(up.buf[:0], data)
		}
		c.taken = c.taken || len(data) > 0
		up.last.Store(c.source.done())
		if len(piece) > 0 {
			c.conn.armWrite()
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
	up.conn = u
	switch {
	case up.futile: // it failed before this goroutine came here
	case up.sent:
		u.armRead(u.pool.client.Response)
	default:
		u.armRead(0)
	}
}

// armRead bounds reading of the response, which an upload that fails ends at
// once.
func (c *Call) armRead(within time.Duration) {
	up := &c.upload
	if !up.running {
		c.conn.armRead(within)
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	if !up.futile {
		c.conn.armRead(within)
	}
}

// headCame says that the final head has come: what is read from now on has time
// limits of its own.
func (up *upload) headCame() {
	if !up.running {
		return
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	up.conn = nil
}

// settleUpload takes note of an upload that has ended, or is about to.
func (c *Call) settleUpload() {
	up := &c.upload
	if !up.running {
		return
	}
	wait := time.Duration(0)
	if up.last.Load() {
		wait = lastPiece
	}
	select {
	case <-up.done:
		up.done <- struct{}{}
		c.endUpload()
	case <-time.After(wait):
	}
}

// endUpload waits for the upload, and stops it if it has not ended: the response
// is whole without it, or there will be none.
func (c *Call) endUpload() {
	if !c.upload.running {
		return
	}
	select {
	case <-c.upload.done:
	default:
		c.stopSource()
		c.conn.close() // it owes the rest of the request
		<-c.upload.done
	}
	c.upload.running, c.upload.conn = false, nil
	c.uploads(false)
	c.written = c.upload.sent
}
