package http2

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
)

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
	if o.b != nil {
		return
	}
	if b, ok := o.server.outputs.Get().(*[outputSize]byte); ok {
		o.b = b[:0]
	} else {
		o.b = make([]byte, 0, outputSize)
	}
}

// recycle returns a buffer to the pool. One that had to grow is dropped.
func (o *output) recycle(b []byte) {
	if b = http1.RecycleBuffer(b); cap(b) == outputSize {
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
