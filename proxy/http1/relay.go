package http1

import (
	"cmp"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
)

// Relay completes the response that was begun with Begin: it sends the body and the
// trailer fields of the response of c. Data that arrives together is sent together. If
// Relay fails after a part of the response was sent, the exchange is aborted. An error
// of the upstream is a *CallError; any other error concerns the client or the head.
func (e *Exchange) Relay(c *Call) error {
	c.pollUpload()
	if err := e.StartBody(c.body.framing); err != nil {
		return err
	}
	if err := c.relayBody(e); err != nil {
		e.Abort()
		return cmp.Or(e.err, err)
	}
	return e.EndWith(c.responseTrailer())
}

// A Receiver receives a response: a Duplex, or a client that does not use HTTP/1.1.
type Receiver interface {
	// Begin receives the head. length is the length of the body, or -1 if it is
	// unknown.
	Begin(status int, f *Fields, length int64) error
	flushWriter // Write receives a part of the body. It may buffer it until Flush or End.
	// End receives the trailer fields.
	End(trailer *Fields) error
}

// RelayTo sends the response of c to a Receiver. For an Exchange whose body is read by
// the call itself, Relay costs less. An error of the upstream is a *CallError; any
// other error is one of the Receiver.
func (c *Call) RelayTo(to Receiver) error {
	c.pollUpload()
	if err := to.Begin(c.Response.Status, &c.Response.Fields, c.body.framing.Length); err != nil {
		return err
	}
	if err := c.relayBody(to); err != nil {
		return err
	}
	return to.End(c.responseTrailer())
}

// relayBody sends the response body of c. If the upstream fails, the client gets what was
// received before.
func (c *Call) relayBody(to flushWriter) error {
	c.body.flusher = to
	for {
		data, err := c.body.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // Next returns io.EOF unwrapped
			return nil
		case c.flushErr != nil:
			return c.flushErr
		case err != nil:
			_ = to.Flush()
			return c.responseBodyError(err)
		}
		if c.OnBody != nil {
			c.OnBody(data)
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

// responseTrailer returns the trailer fields of the response that are forwarded.
func (c *Call) responseTrailer() *Fields {
	if keep := c.KeepResponseTrailer; keep != nil {
		c.body.trailer.DropFunc(func(f Field) bool { return !keep(f) })
	}
	return &c.body.trailer
}

// responseBodyError returns the error for a response body that was cut short. If the
// request body has failed, that is the cause: the upstream cannot respond to a body
// that it did not get.
func (c *Call) responseBodyError(err error) *CallError {
	f := c.newError(err)
	if f.Phase == SendingRequest {
		f.Phase = ReadingResponseBody
	}
	return f
}

// UpgradedConn returns the upstream connection after a 101 response. unread holds bytes
// that the upstream has sent after that response. The caller owns both from then on. No
// deadlines are set on the connection.
func (c *Call) UpgradedConn() (nc net.Conn, unread []byte, ok bool) {
	if !c.switched || c.handedOver {
		return nil, nil, false
	}
	c.handedOver = true
	c.activeConn.Store(nil)
	_ = c.conn.net.SetDeadline(time.Time{})
	return c.conn.net, append([]byte(nil), c.in.unread()...), true
}

// A writeGuard panics if two goroutines write to a connection at the same time. The locks
// of package net do not prevent that: readFirst and reuseAttempt write while they hold
// the one for reading. Without the build tag poison it does nothing.
type writeGuard struct{ writing atomic.Bool }

func (g *writeGuard) begin() {
	if reuse.Poisoned && g.writing.Swap(true) {
		panic("http1: two goroutines write to a connection")
	}
}

func (g *writeGuard) end() {
	if reuse.Poisoned {
		g.writing.Store(false)
	}
}

// write writes p to the client.
func (c *conn) write(p []byte) error {
	c.writeGuard.begin()
	defer c.writeGuard.end()
	if c.socket.IsPlain {
		return c.socket.Write(p)
	}
	_, err := c.net.Write(p)
	return err
}

const (
	headBufferSize = 8 << 10 // enough for most heads and small messages
	// BodyBufferSize is the size in bytes of the buffer that an exchange holds while a body is
	// read: one of unknown length, or one that is read by Next and does not fit behind its head.
	BodyBufferSize = 32 << 10
)

// A bufferPool holds buffers for reuse. A buffer that was put back may be reused for
// another message at once, so nothing may refer to it any more. With the build tag
// poison, buffers are overwritten instead and never reused.
type bufferPool struct {
	heads, bodies sync.Pool
}

func (p *bufferPool) getHead() []byte { return reused[[headBufferSize]byte](&p.heads)[:] }

func (p *bufferPool) getBody() []byte { return reused[[BodyBufferSize]byte](&p.bodies)[:] }

// reused returns what p holds, which was emptied before it was put there, or a new one.
func reused[T any](p *sync.Pool) *T {
	if kept, ok := p.Get().(*T); ok {
		return kept
	}
	return new(T)
}

// put returns a buffer of either size to the pool. Buffers of other sizes are dropped.
func (p *bufferPool) put(b []byte) {
	switch b = reuse.Memory(b); cap(b) { // 0 if it was overwritten
	case headBufferSize:
		p.heads.Put((*[headBufferSize]byte)(b[:headBufferSize]))
	case BodyBufferSize:
		p.bodies.Put((*[BodyBufferSize]byte)(b[:BodyBufferSize]))
	}
}
