package http2

import (
	"time"

	"golang.org/x/net/http2"
)

const (
	// suspiciousResets is the number of resets after which requests are held back for
	// resetPause, if more than half of all were reset, to see whether these are reset,
	// too.
	suspiciousResets = 10
	resetPause       = 2 * time.Millisecond
)

// received is called when the head of a request has been received. Its handler begins
// when all that has arrived with it has been read: if it is reset by then, it costs
// nothing more.
func (c *conn) received(s *Stream) {
	c.mu.Lock()
	s.endReceived = c.block.endStream
	tooMany := c.running+len(c.pending) >= c.server.MaxStreams
	if tooMany {
		s.wasReset = true
		c.resetLocked(s, http2.ErrCodeRefusedStream, errReset)
	}
	c.mu.Unlock()
	if tooMany {
		c.release(s)
		return
	}
	c.pending = append(c.pending, s)
}

// beginPending begins the requests that have been received. It reports whether some are
// held back because the client resets most of its requests.
func (c *conn) beginPending() (held bool) {
	if len(c.pending) == 0 {
		return false
	}
	c.mu.Lock()
	suspicious := c.resets > suspiciousResets && c.resets > c.requests/2
	c.mu.Unlock()
	if suspicious {
		now := time.Now()
		if c.pendingSince.IsZero() {
			c.pendingSince = now
		}
		if now.Sub(c.pendingSince) < resetPause {
			return true
		}
	}
	c.beginAll()
	return false
}

// beginAll begins the requests that have been received.
func (c *conn) beginAll() {
	c.pendingSince = time.Time{}
	for i, s := range c.pending {
		c.pending[i] = nil
		c.begin(s)
	}
	c.pending = c.pending[:0]
}

// dropPending releases the requests that have not begun when the connection ends.
func (c *conn) dropPending() {
	for _, s := range c.pending {
		s.recycle()
	}
	c.pending = nil
}

// begin begins the handler of s.
func (c *conn) begin(s *Stream) {
	c.mu.Lock()
	gone := s.closed
	if !gone {
		s.started = true
		c.running++
	}
	c.mu.Unlock()
	if gone {
		c.release(s)
		return
	}
	if more := c.beginHandler(s); more {
		go c.serveStream(s)
	}
}

func (c *conn) beginHandler(s *Stream) (more bool) {
	defer c.recoverHandler(s)
	if c.server.Handler.BeginHTTP2(s) {
		return true
	}
	c.mu.Lock()
	waits := !s.canFinishLocked()
	c.mu.Unlock()
	if waits {
		go func() {
			c.end(s)
			c.flush()
		}()
	} else {
		c.end(s)
	}
	return false
}

// serveStream runs the second part of the handler.
func (c *conn) serveStream(s *Stream) {
	defer c.recoverHandler(s)
	c.server.Handler.ServeHTTP2(s)
	c.end(s)
	c.flush()
}

// recoverHandler resets a stream whose handler has panicked.
func (c *conn) recoverHandler(s *Stream) {
	v := recover()
	if v == nil {
		return
	}
	if report := c.server.OnPanic; report != nil {
		report(v)
	}
	c.mu.Lock()
	s.ended = false // the response is not sent
	c.mu.Unlock()
	s.State = nil // it may be in any state
	c.end(s)
	c.flush()
}

// end sends what is left of the response of a stream whose handler has returned, and ends
// the stream. A response that is not complete is cut by
// a reset. A client that has not sent its whole request is told by a reset that the rest
// is not needed (RFC 9113 section 8.1).
func (c *conn) end(s *Stream) {
	c.mu.Lock()
	s.finishLocked()
	switch {
	case s.closed:
	case !s.endSent:
		c.closeByResetLocked(s, http2.ErrCodeInternal)
	case s.isMalformed():
		s.wasReset = true
		c.closeByResetLocked(s, http2.ErrCodeProtocol)
	case !s.endReceived:
		c.closeByResetLocked(s, http2.ErrCodeNo)
	}
	c.closeLocked(s)
	c.running--
	if c.running == 0 {
		c.allEnded.Broadcast()
	}
	if c.server.announceClose.Load() {
		c.drainLocked()
	}
	c.mu.Unlock()
	c.release(s)
}

// release counts a stream that has ended and recycles it. A connection whose client resets
// most of its requests is closed (rapid reset, CVE-2023-44487): each of these costs the
// upstream a request, and the client almost nothing (RFC 9113 section 10.5). Resets that
// the client has caused by an error count, too (CVE-2025-8671).
func (c *conn) release(s *Stream) {
	c.mu.Lock()
	wasReset := s.wasReset
	c.requests++
	if wasReset {
		c.resets++
	}
	c.mu.Unlock()
	s.recycle()
	switch {
	case c.counter == nil:
	case !wasReset:
		c.counter.Completed()
	default:
		most := c.counter.Reset()
		c.mu.Lock()
		if c.resets > most && c.resets > c.requests/2 && c.err == nil {
			c.endLocked(http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
		}
		c.mu.Unlock()
		c.interruptRead()
	}
}
