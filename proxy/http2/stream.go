package http2

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
)

// errReset reports that the client has reset the stream.
var errReset = errors.New("stream reset by the client")

// A Stream is one request and its response. It is an upstream.Sink, and its request body.
// One goroutine may read the body while another one writes the response.
type Stream struct {
	Request
	// BeforeEnd, if it is set, is called once before the last bytes of the response are
	// sent. flush sends the part of the response that has been written so far, if that
	// is not the whole response.
	BeforeEnd func(flush func())
	// State belongs to the handler. It is kept while the Stream is reused, for requests
	// of any client, so that a handler needs no pool of its own.
	State any

	conn    *conn
	id      uint32
	ctx     http1.Context
	trailer http1.Fields // of the request
	body    []byte       // the received part of the request body
	canRead sync.Cond    // all on the mutex of the connection
	canSend sync.Cond

	response
	streamState // guarded by the mutex of the connection

	abortMu sync.Mutex // guards aborter; held while it is called
	aborter http1.Aborter
}

// A streamState is the part of a Stream that is guarded by the mutex of its connection.
type streamState struct {
	closed   bool  // it is not among the streams of the connection any more
	err      error // why the stream has failed; nil if it has not
	wasReset bool  // the client has reset it, or caused an error
	started  bool  // its handler has begun on a goroutine of its own

	sendWindow, receiveWindow int64
	window                    int64 // size of receiveWindow when nothing is unread
	bodyRead                  int   // bytes of body that were read
	returned                  int64 // bytes of the body that were consumed and not yet added to receiveWindow
	received                  int64 // bytes of the body
	endReceived, endSent      bool
	continued                 bool // 100 Continue is not to be sent any more
	sending                   bool // a goroutine waits for room or a window
	readDeadline              time.Time
	readTimer                 *time.Timer
}

// newStreamLocked returns a new stream.
func (c *conn) newStreamLocked(id uint32) *Stream {
	s, ok := c.server.streams.Get().(*Stream)
	if !ok {
		s = new(Stream)
		s.reset()
	}
	s.conn, s.id = c, id
	s.canRead.L, s.canSend.L = &c.mu, &c.mu
	s.sendWindow, s.receiveWindow, s.window = c.peerWindow, initialWindow, initialWindow
	c.inUse.Add(1)
	if s.streamState.err = c.err; c.err != nil { // the connection has ended meanwhile
		s.closed = true
		return s
	}
	c.streams[id] = s
	return s
}

// releaseUnused releases a stream whose handler has not begun.
func (c *conn) releaseUnused(s *Stream) {
	c.mu.Lock()
	c.closeLocked(s)
	c.mu.Unlock()
	s.recycle()
}

// closeLocked removes s from the streams of the connection. What was received and not
// read is added to the window of the connection.
func (c *conn) closeLocked(s *Stream) {
	if s.closed {
		return
	}
	s.closed = true
	delete(c.streams, s.id)
	if s.endReceived {
		c.endedByClient.add(s.id)
	}
	s.dropBodyLocked()
}

// recycle releases the memory of s for other requests. Nobody may use it any more. A stream
// whose context or timer somebody else may still use is left to the garbage collector.
func (s *Stream) recycle() {
	c := s.conn
	s.AbortWith(nil)
	c.mu.Lock()
	reusable := (s.readTimer == nil || s.readTimer.Stop()) && !s.ctx.Observed()
	if c.inUse.Add(-1) == 0 {
		c.idleSince = time.Now()
	}
	wake := c.draining && c.isIdle()
	c.mu.Unlock()
	if reusable {
		s.reset()
		c.server.streams.Put(s)
	}
	if wake {
		c.interruptRead()
	}
}

// reset makes s the stream of no request. It names all that is kept for the next one, which may
// be of another client.
func (s *Stream) reset() {
	fields, state, trailer := s.Fields.Emptied(keptHeader), s.State, s.trailer.Emptied(keptHeader)
	body, response := keep(s.body, maxFrame), s.response.emptied()
	*s = Stream{} // a literal with these would be made on the stack, which grows for it
	s.Fields, s.announced, s.State, s.trailer, s.body, s.response = fields, -1, state, trailer, body, response
}

// failLocked makes all that waits for the stream fail.
func (s *Stream) failLocked(err error) {
	s.err = cmp.Or(s.err, err)
	s.closed = true
	s.dropBodyLocked()
	s.canRead.Broadcast()
	s.canSend.Broadcast()
	s.conn.out.sent.Broadcast()
	if !s.started {
		return
	}
	s.ctx.Abort()
	s.abortMu.Lock()
	defer s.abortMu.Unlock()
	if s.aborter != nil {
		s.aborter.Abort()
	}
}

// Context returns the context of the request. It is canceled when the stream or its
// connection has failed.
func (s *Stream) Context() *http1.Context { return &s.ctx }

// AbortWith makes a failure of the stream call a.Abort, until it is called again with nil.
// When that call returns, Abort has returned.
func (s *Stream) AbortWith(a http1.Aborter) {
	s.abortMu.Lock()
	s.aborter = a
	s.abortMu.Unlock()
	if a == nil {
		return
	}
	s.conn.mu.Lock()
	failed := s.err != nil
	s.conn.mu.Unlock()
	if failed {
		a.Abort()
	}
}

// WasReset reports whether the client has reset the stream, while its connection goes on.
func (s *Stream) WasReset() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.wasReset && s.conn.err == nil
}

// resetLocked resets a stream whose handler may be in progress.
func (c *conn) resetLocked(s *Stream, code http2.ErrCode, err error) {
	if !s.closed {
		c.closeByResetLocked(s, code)
		s.failLocked(err)
	}
}

// closeByResetLocked resets a stream.
func (c *conn) closeByResetLocked(s *Stream, code http2.ErrCode) {
	_ = c.framer.WriteRSTStream(s.id, code)
	c.resetByUs.add(s.id)
	c.closeLocked(s)
}

// recentStreams are the numbers of streams that have ended, the most recent ones. A client
// that sends more for a stream does not know yet that the stream was reset, nor any reset
// after that: these streams are all open to it, so that there are no more than it may have.
type recentStreams struct {
	ids  []uint32
	next int // is replaced next
}

// maxRecentStreams is how many streams are remembered: more than the maximum of concurrent
// streams, because a client does not know that maximum before it has received SETTINGS.
const maxRecentStreams = 1024

func (r *recentStreams) add(id uint32) {
	if len(r.ids) < maxRecentStreams {
		r.ids = append(r.ids, id)
		return
	}
	r.ids[r.next] = id
	r.next = (r.next + 1) % maxRecentStreams
}

func (r *recentStreams) has(id uint32) bool { return slices.Contains(r.ids, id) }

// SwitchProtocols implements upstream.Sink. It accepts an extended CONNECT (RFC 8441) with
// these fields, and returns the stream as a connection. It is closed when the handler
// returns.
func (s *Stream) SwitchProtocols(_ string, f *http1.Fields) (net.Conn, []byte, error) {
	if err := s.Begin(200, f, -1); err != nil {
		return nil, nil, err
	}
	if err := s.Flush(); err != nil {
		return nil, nil, err
	}
	return tunnel{s}, nil, nil
}

// A tunnel is a stream as a connection.
type tunnel struct{ *Stream }

// Write sends p at once.
func (t tunnel) Write(p []byte) (int, error) {
	n, err := t.Stream.Write(p)
	if err != nil {
		return 0, err
	}
	return n, t.Flush()
}

// CloseWrite ends the response. The client can still send.
func (t tunnel) CloseWrite() error {
	if err := t.End(nil); err != nil {
		return err
	}
	c := t.conn
	c.mu.Lock()
	t.finishLocked()
	err := t.streamState.err
	c.mu.Unlock()
	c.flush()
	return err
}

// Close makes pending reads and writes fail. Unless both directions have ended, it resets
// the stream.
func (t tunnel) Close() error {
	c := t.conn
	c.mu.Lock()
	if !t.endSent || !t.endReceived {
		c.resetLocked(t.Stream, http2.ErrCodeCancel, net.ErrClosed)
	}
	c.mu.Unlock()
	c.flush()
	return nil
}

// RemoteAddr implements net.Conn.
func (t tunnel) RemoteAddr() net.Addr { return t.conn.net.RemoteAddr() }

// SetDeadline implements net.Conn. Writing is bounded by Timeouts.Write.
func (t tunnel) SetDeadline(at time.Time) error { return t.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (tunnel) SetWriteDeadline(time.Time) error { return nil }
