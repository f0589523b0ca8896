package http2

import (
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/limiter/reuse"
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

// outputSize is the size of the buffer for frames that are to be sent. The bodies of
// responses wait when it is full.
const outputSize = 32 << 10

// frameHeader is the length of the header of a frame.
const frameHeader = 9

// An output holds the frames that are to be sent. It is guarded by the mutex of its
// connection.
type output struct {
	server   *Server
	b        []byte
	writing  bool      // a goroutine is sending
	waiting  int       // goroutines that wait for room
	sent     sync.Cond // room has become available, or a stream has failed
	deadline time.Time // for writing
	failed   bool      // nothing more can be sent
}

func (o *output) init(c *conn) { o.server, o.sent.L = c.server, &c.mu }

// Write implements io.Writer for the Framer.
func (o *output) Write(p []byte) (int, error) {
	o.ensureBuffer()
	o.b = append(o.b, p...)
	return len(p), nil
}

func (o *output) ensureBuffer() {
	if o.b == nil {
		o.b = o.server.outputs.Get().(*[outputSize]byte)[:0]
	}
}

// recycle returns a buffer to the pool. One that had to grow is dropped.
func (o *output) recycle(b []byte) {
	if b = reuse.Memory(b); cap(b) == outputSize {
		o.server.outputs.Put((*[outputSize]byte)(b[:outputSize]))
	}
}

// room returns how many bytes of a body fit into the buffer.
func (o *output) room() int { return outputSize - len(o.b) - frameHeader }

// waitForRoom waits until something was sent or a stream has failed.
func (c *conn) waitForRoom() {
	c.out.waiting++
	c.out.sent.Wait()
	c.out.waiting--
}

// appendFrame appends the header of a frame, whose payload follows.
func (o *output) appendFrame(t http2.FrameType, flags http2.Flags, stream uint32, length int) {
	o.ensureBuffer()
	o.b = append(o.b, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// flush sends what is to be sent, unless another goroutine does so.
func (c *conn) flush() {
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
}

// flushLocked is flush with mu, which it releases while it sends. If there are other
// requests, it lets their goroutines run first, so that all their frames are sent
// together.
func (c *conn) flushLocked() {
	o := &c.out
	if o.writing || len(o.b) == 0 || o.failed {
		return
	}
	o.writing = true
	if c.running > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(o.b) > 0 {
		b := o.b
		o.b = nil
		c.mu.Unlock()
		err := c.send(b)
		c.mu.Lock()
		o.recycle(b)
		if err != nil {
			o.failed, o.b = true, nil
			c.abortLocked(err)
			c.interruptRead()
		}
		if o.waiting > 0 {
			o.sent.Broadcast()
		}
	}
	if o.writing = false; o.waiting > 0 {
		o.sent.Broadcast()
	}
}

// flushAll sends what is to be sent, also behind what another goroutine sends.
func (c *conn) flushAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out.writing {
		c.waitForRoom()
	}
	c.flushLocked()
}

// send sends b. A client that accepts nothing for Timeouts.Write loses its connection.
func (c *conn) send(b []byte) error {
	if timeout := c.server.Timeouts.Write; timeout > 0 {
		if at := time.Now().Add(timeout); c.out.deadline.Before(at) {
			c.out.deadline = at.Add(timeout / 8)
			_ = c.net.SetWriteDeadline(c.out.deadline) // if it fails, so does Write
		}
	}
	_, err := c.net.Write(b)
	return err
}

// wakeSendersLocked wakes the streams that wait for a window.
func (c *conn) wakeSendersLocked() {
	for _, s := range c.streams {
		if s.sending {
			s.canSend.Signal()
		}
	}
}
