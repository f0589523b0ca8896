package http2

import (
	"os"
	"time"

	"golang.org/x/net/http2"
)

// minPiece is the smallest part of a body that is sent because there is no room for more.
const minPiece = 1 << 10

// push adds to the output what was written so far, and p after it. It waits for windows
// and for room.
func (s *Stream) push(p []byte) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.pushHeadLocked(0)
	w := sendWait{s: s}
	defer w.stop()
	data := s.data
	s.data = s.data[:0]
	if err := w.send(data, 0); err != nil {
		return err
	}
	return w.send(p, 0)
}

// pushHeadLocked adds the head to the output.
func (s *Stream) pushHeadLocked(flags http2.Flags) {
	if s.headSent {
		return
	}
	s.headSent = true
	s.conn.appendHeadersLocked(s.id, s.head, flags)
	s.endSent = flags != 0
}

// canFinishLocked reports whether finishLocked would not wait.
func (s *Stream) canFinishLocked() bool {
	n := int64(len(s.data))
	return s.err != nil || n == 0 || n <= min(s.sendWindow, s.conn.sendWindow) && n <= int64(s.conn.peerFrame)
}

// finishLocked adds to the output what is left of the response. It may wait for windows,
// and releases mu meanwhile.
func (s *Stream) finishLocked() {
	if !s.ended || s.err != nil {
		return
	}
	const endStream = http2.FlagHeadersEndStream // the same flag as that of DATA
	c, trailer := s.conn, s.response.trailer
	last := http2.Flags(endStream)
	if len(trailer) > 0 {
		last = 0
	}
	if len(s.data) == 0 {
		s.pushHeadLocked(last)
	} else {
		s.pushHeadLocked(0)
		w := sendWait{s: s, whole: true}
		err := w.send(s.data, last)
		w.stop()
		if err != nil {
			return
		}
	}
	switch {
	case s.endSent:
	case len(trailer) > 0:
		c.appendHeadersLocked(s.id, trailer, endStream)
	default:
		c.out.appendFrame(http2.FrameData, endStream, s.id, 0)
	}
	s.endSent = true
}

// A sendWait sends parts of a body, and waits until that is possible. A client that reads
// nothing for Timeouts.Write meanwhile loses the stream.
type sendWait struct {
	s     *Stream
	whole bool // the part is sent whether or not there is room, because it is the last one
	timer *time.Timer
	over  *bool // set by stop; guarded by the mutex of the connection
}

// send adds p to the output, and flags to its last frame. The mutex of the connection is
// held, except while it waits.
func (w *sendWait) send(p []byte, flags http2.Flags) error {
	s, c := w.s, w.s.conn
	for len(p) > 0 {
		if s.err != nil {
			return s.err
		}
		n := int(min(int64(len(p)), s.sendWindow, c.sendWindow, int64(c.peerFrame)))
		room := c.out.room()
		switch {
		case n <= 0:
			w.wait(func() { s.sending = true; s.canSend.Wait(); s.sending = false })
			continue
		case !w.whole && room < min(n, minPiece):
			w.wait(c.waitForRoom)
			continue
		case !w.whole:
			n = min(n, room)
		}
		f := http2.Flags(0)
		if n == len(p) {
			f = flags
		}
		c.out.appendFrame(http2.FrameData, f, s.id, n)
		c.out.b = append(c.out.b, p[:n]...)
		p = p[n:]
		s.sendWindow -= int64(n)
		c.sendWindow -= int64(n)
		s.endSent = f != 0
	}
	return nil
}

// room waits until there is room for n bytes of a header block, or the output is empty.
func (w *sendWait) room(n int) error {
	s, c := w.s, w.s.conn
	for s.err == nil && len(c.out.b) > 0 && c.out.room() < n {
		w.wait(c.waitForRoom)
	}
	return s.err
}

// wait sends what is in the output, or else waits.
func (w *sendWait) wait(wait func()) {
	c := w.s.conn
	if !c.out.writing && len(c.out.b) > 0 {
		c.flushLocked()
		return
	}
	if w.timer == nil {
		if timeout := c.server.Timeouts.Write; timeout > 0 {
			s, over := w.s, new(bool)
			w.over = over
			w.timer = time.AfterFunc(timeout, func() {
				c.mu.Lock()
				if !*over {
					c.resetLocked(s, http2.ErrCodeCancel, os.ErrDeadlineExceeded)
				}
				c.mu.Unlock()
				c.flush()
			})
		}
	}
	wait()
}

// stop ends the timeout.
func (w *sendWait) stop() {
	if w.timer != nil {
		w.timer.Stop()
		*w.over = true
	}
}
