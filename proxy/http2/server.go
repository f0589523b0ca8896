package http2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Handler responds to requests.
type Handler interface {
	// BeginHTTP2 is called when the head of a request has been received, on the
	// goroutine that reads the connection, so it must not wait for anything. It returns
	// false if it has responded. Otherwise ServeHTTP2 is called on a goroutine of its
	// own, and must respond. When the last of the two returns, neither s nor any string
	// of s may be used any more.
	BeginHTTP2(s *Stream) bool
	ServeHTTP2(s *Stream)
}

// A ResetCounter counts the requests of a connection that its client has reset.
type ResetCounter interface {
	// Completed counts a request that was not reset.
	Completed()
	// Reset counts a request that was reset. It returns how many of its requests the
	// connection may reset, as long as they are not more than half of all.
	Reset() (most int)
}

// A Server serves HTTP/2 connections. Its fields must be set before the first connection
// is served and must not be changed afterwards.
type Server struct {
	Handler Handler
	// MaxHeader is the maximum size of a header list as defined in RFC 9113 section
	// 6.5.2, by default 32 KiB; MaxFields is the maximum number of its lines, by default
	// 128. MaxStreams is the maximum number of concurrent requests of a connection, by
	// default 100.
	MaxHeader, MaxFields, MaxStreams int
	// Timeouts bound waiting for a client. Header is for the beginning of a connection
	// and for a whole head, Write for a part of a response, Idle for a connection
	// without requests. Body does not apply; see Stream.SetReadDeadline.
	Timeouts http1.Timeouts
	// Budget bounds the memory of request bodies that were received and not read, beyond 16 KiB
	// of each connection. If it is nil, a connection may hold 1 MiB.
	Budget Budget
	// NewResetCounter returns the counter for a new connection. If it is nil, clients
	// may reset any number of requests.
	NewResetCounter func(net.Conn) ResetCounter
	// OnPanic is called with the value that a Handler panicked with. The stream is reset.
	OnPanic func(v any)
	// OnError is called with the error for which a connection was closed.
	OnError func(err error)

	setupOnce     sync.Once
	names         nameTable
	date          http1.DateCache
	inputs        sync.Pool // of *[inputSize]byte
	outputs       sync.Pool // of *[outputSize]byte
	streams       sync.Pool // of *Stream
	blocks        sync.Pool // of *[]byte, for header blocks while they are decoded
	announceClose atomic.Bool
	conns         http1.ConnSet[*conn]
}

func (s *Server) prepare() {
	s.setupOnce.Do(func() {
		s.MaxHeader, s.MaxFields, s.MaxStreams = cmp.Or(s.MaxHeader, 32<<10), cmp.Or(s.MaxFields, 128), cmp.Or(s.MaxStreams, 100)
		s.names = newNameTable()
		s.inputs.New = func() any { return new([inputSize]byte) }
		s.outputs.New = func() any { return new([outputSize]byte) }
		s.blocks.New = func() any { return new([]byte) }
	})
}

// ServeConn serves a connection on which HTTP/2 was negotiated by TLS, or which begins
// with the connection preface. received is what has been read of it; nil for nothing. It
// returns when the connection has ended and all its handlers have returned.
func (s *Server) ServeConn(nc net.Conn, received []byte) {
	s.prepare()
	c := newConn(s, nc, received)
	if !s.conns.Add(c) {
		_ = nc.Close()
		return
	}
	defer s.conns.Remove(c)
	c.serve()
}

// drainWait is how long a connection that announced its end stays open for requests that
// its client sent before it knew.
const drainWait = time.Second

// lastStream is the largest number of a stream. A GOAWAY with it announces the end of the
// connection, and still accepts new requests (RFC 9113 section 6.8).
const lastStream = 1<<31 - 1

// AnnounceClose makes connections announce their end by GOAWAY with their next response.
// The server still accepts connections.
func (s *Server) AnnounceClose() { s.announceClose.Store(true) }

// Shutdown shuts the server down gracefully. All connections announce their end. They
// still serve requests in progress, and those that were sent before the client knew.
// When ctx is done, Shutdown closes the connections that are left and returns an error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.prepare()
	s.AnnounceClose()
	s.conns.Close()
	for _, c := range s.conns.All() {
		c.drain()
	}
	err := http1.WaitUntil(ctx, 5*time.Millisecond, func() bool { return len(s.conns.All()) == 0 })
	if err == nil {
		return nil
	}
	for _, c := range s.conns.All() {
		_ = c.net.Close()
		c.mu.Lock()
		c.abortLocked(net.ErrClosed) // it may wait for a handler instead of reading
		c.mu.Unlock()
	}
	return fmt.Errorf("streams aborted: %w", err)
}

// drain announces the end of the connection. It is called by any goroutine.
func (c *conn) drain() {
	c.mu.Lock()
	c.drainLocked()
	c.mu.Unlock()
	c.flush()
	c.interruptRead()
}

// drainLocked is drain without sending the GOAWAY frame.
func (c *conn) drainLocked() {
	if !c.draining && c.ready {
		_ = c.framer.WriteGoAway(lastStream, http2.ErrCodeNo, nil)
		c.idleSince, c.drainingSince = time.Now(), time.Now()
	}
	c.draining = true
}

// refusesLocked reports whether new streams are refused: drainWait after the announcement of the end, which
// is then repeated with the last stream that is served (RFC 9113 section 6.8).
func (c *conn) refusesLocked() bool {
	if !c.refuses && c.draining && time.Since(c.drainingSince) >= drainWait {
		c.refuses = true
		_ = c.framer.WriteGoAway(c.lastID, http2.ErrCodeNo, nil)
	}
	return c.refuses
}

const (
	// pingAfter is how long a client with requests in progress may be silent before it
	// gets a PING, and pingTimeout how long it may take to acknowledge that.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// errSilent reports that a client has sent nothing for too long.
var errSilent = errors.New("client is silent")

// beforeRead is called before each read that may wait. It begins the requests that were
// received, sends what is to be sent, and sets the deadline for the read.
func (c *conn) beforeRead() error {
	held := c.beginPending()
	now := time.Now()
	if c.waitBegan.IsZero() {
		c.waitBegan = now
	}
	timeout, err := c.beforeReadAt(now)
	if err != nil {
		return err
	}
	if held {
		timeout = resetPause
	}
	c.setReadDeadline(now, timeout)
	if c.interrupted.Swap(false) { // interruptRead may have set its deadline before this one
		c.deadline = time.Time{}
		return c.afterSilence(now)
	}
	return nil
}

// beforeReadAt sends what is to be sent, and returns the timeout for the read. If the
// client does not read, it waits until what was added to the output before has been sent,
// so that the answers to the frames of the client use little memory.
func (c *conn) beforeReadAt(now time.Time) (timeout time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
	for len(c.out.b) > 2*outputSize && c.err == nil {
		if !c.out.writing {
			c.flushLocked()
			continue
		}
		c.waitForRoom()
	}
	idle := c.server.Timeouts.Idle
	if c.draining {
		idle = drainWait
	}
	if c.err == nil && c.ready && !c.block.open && idle > 0 && c.isIdle() && now.Sub(c.idleSince) >= idle {
		return 0, errEnded // also if the client sends frames without requests
	}
	timeout = c.silenceLocked(now)
	if timeout <= 0 && c.err == nil {
		return 0, fmt.Errorf("%w: %w", errSilent, os.ErrDeadlineExceeded)
	}
	return timeout, c.err
}

// silenceLocked returns how long the connection may be silent before afterSilence decides what
// that means. It is not the timeout itself, so that the deadline need not be changed
// whenever a request begins or ends.
func (c *conn) silenceLocked(now time.Time) time.Duration {
	t := &c.server.Timeouts
	switch {
	case c.mayHaveHeaderTimeout():
		return t.Header - now.Sub(c.headBegan) // for all of it, however often some arrives
	case c.draining && c.isIdle():
		return drainWait
	case !c.pinged.IsZero():
		return pingTimeout
	case t.Idle > 0:
		return min(t.Idle, pingAfter)
	}
	return pingAfter
}

// mayHaveHeaderTimeout reports whether the client is in the middle of the preface or of a
// header block.
func (c *conn) mayHaveHeaderTimeout() bool {
	return (!c.ready || c.block.open) && c.server.Timeouts.Header > 0
}

// setReadDeadline sets the deadline for reading, unless it is less than an eighth of the
// timeout later than it should be.
func (c *conn) setReadDeadline(now time.Time, timeout time.Duration) {
	at := now.Add(timeout)
	if c.deadline.Before(at) || c.deadline.After(at.Add(timeout/8)) {
		c.deadline = at.Add(timeout / 8)
		_ = c.net.SetReadDeadline(c.deadline) // if it fails, so does the read
	}
}

// interruptRead makes the goroutine that reads notice a change. Any goroutine may call it.
func (c *conn) interruptRead() {
	c.interrupted.Store(true)
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
}

// afterSilence is called when the client has sent nothing until a deadline, or when the
// read was interrupted. It returns an error if the connection has to end.
func (c *conn) afterSilence(now time.Time) error {
	c.deadline = time.Time{}
	if len(c.pending) > 0 {
		return nil // they were held back only for a short time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := now.Sub(c.waitBegan)
	switch {
	case c.err != nil:
		return c.err
	case c.mayHaveHeaderTimeout(), c.isIdle(): // see beforeReadAt
	case !c.pinged.IsZero():
		if now.Sub(c.pinged) >= pingTimeout {
			return fmt.Errorf("%w: no acknowledgement of PING", errSilent)
		}
	case silent >= pingAfter:
		c.pinged = now
		_ = c.framer.WritePing(false, [8]byte{})
	}
	return nil
}
