package http2

import (
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
)

// returnAfter is how many bytes are consumed before the client is told that it may send
// more.
const returnAfter = receiveWindow / 4

// maxEmptyData is how many DATA frames without content may follow each other. They cost no window
// (CVE-2019-9518).
const maxEmptyData = 100

// readData reads the payload of a DATA frame without padding, straight into the body of its
// stream.
func (c *conn) readData(h http2.FrameHeader) error {
	left := int(h.Length)
	s, fault := c.beginData(h, left)
	for left > 0 {
		if c.in.isEmpty() {
			if err := c.in.fill(); err != nil {
				return err
			}
		}
		piece := c.in.take(left)
		left -= len(piece)
		c.addData(h.StreamID, s, piece)
	}
	if fault != nil || s == nil {
		return fault
	}
	return c.endData(h, s)
}

// onData receives a DATA frame with padding.
func (c *conn) onData(f *http2.DataFrame) error {
	s, fault := c.beginData(f.FrameHeader, len(f.Data()))
	if fault != nil || s == nil {
		return fault
	}
	c.addData(f.StreamID, s, f.Data())
	return c.endData(f.FrameHeader, s)
}

// beginData begins a DATA frame with so many bytes of a body. It returns the stream to which
// they belong, or nil if they are not wanted.
func (c *conn) beginData(h http2.FrameHeader, length int) (*Stream, error) {
	if h.StreamID%2 == 0 { // no client can have such a stream
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.emptyData++; length > 0 || h.Flags.Has(http2.FlagDataEndStream) {
		c.emptyData = 0
	} else if c.emptyData > maxEmptyData {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	size := int64(h.Length)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiveWindow -= size; c.receiveWindow < 0 {
		return nil, http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s := c.streams[h.StreamID]
	if s == nil {
		c.returnLocked(size)
		switch {
		case h.StreamID > c.lastID:
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		case c.endedByClient.has(h.StreamID):
			return nil, http2.StreamError{StreamID: h.StreamID, Code: http2.ErrCodeStreamClosed}
		}
		return nil, nil // we have reset it, and the client did not know yet
	}
	s.receiveWindow -= size
	s.received += int64(length)
	code := http2.ErrCodeNo
	switch {
	case s.endReceived:
		code = http2.ErrCodeStreamClosed
	case s.receiveWindow < 0:
		code = http2.ErrCodeFlowControl
	case s.announced >= 0 && s.received > s.announced:
		code = http2.ErrCodeProtocol
	}
	if code != http2.ErrCodeNo {
		c.returnLocked(size)
		return nil, http2.StreamError{StreamID: h.StreamID, Code: code}
	}
	s.returnBodyLocked(size - int64(length)) // the padding
	return s, nil
}

// addData adds a part of the body of s, if s still has that number.
func (c *conn) addData(id uint32, s *Stream, data []byte) {
	if s == nil || len(data) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitMemoryLocked(len(data))
	if c.streams[id] != s {
		c.returnLocked(int64(len(data)))
		return
	}
	s.appendBodyLocked(data)
	c.unread.add(c, len(data))
	s.canRead.Signal()
}

// endData ends a DATA frame.
func (c *conn) endData(h http2.FrameHeader, s *Stream) error {
	if !h.Flags.Has(http2.FlagDataEndStream) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[h.StreamID] != s {
		return nil
	}
	return s.endBodyLocked()
}

// appendBodyLocked appends a part of the body. Before the memory has to grow, it removes
// what was read.
func (s *Stream) appendBodyLocked(data []byte) {
	if s.bodyRead > 0 && len(s.body)+len(data) > cap(s.body) {
		s.body = s.body[:copy(s.body, s.body[s.bodyRead:])]
		s.bodyRead = 0
	}
	s.body = append(s.body, data...)
}

// consumeLocked removes n bytes that were read from the body. It keeps little more memory than
// is unread.
func (s *Stream) consumeLocked(n int) {
	s.bodyRead += n
	s.conn.unread.add(s.conn, -n)
	switch left := s.body[s.bodyRead:]; {
	case cap(s.body) > maxFrame && len(left) < cap(s.body)/4:
		s.body, s.bodyRead = append([]byte(nil), left...), 0
	case len(left) == 0:
		s.body, s.bodyRead = s.body[:0], 0
	}
}

// dropBodyLocked drops what was received and not read, and adds it to the window of the
// connection.
func (s *Stream) dropBodyLocked() {
	left := len(s.body) - s.bodyRead
	s.consumeLocked(left)
	s.conn.returnLocked(int64(left))
}

// beginTrailerLocked checks that a trailer section may begin.
func (s *Stream) beginTrailerLocked(f *http2.HeadersFrame) error {
	switch {
	case s.endReceived:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	case !f.StreamEnded():
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	return nil
}

// endBodyLocked ends the request body. Its length must be the one that was announced (RFC
// 9113 section 8.1.1).
func (s *Stream) endBodyLocked() error {
	if s.announced >= 0 && s.received != s.announced {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	s.endReceived = true
	s.canRead.Signal()
	return nil
}

// returnLocked lets the client send n bytes more on the connection.
func (c *conn) returnLocked(n int64) {
	if c.returned += n; c.returned >= returnAfter && c.err == nil {
		c.receiveWindow += c.returned
		_ = c.framer.WriteWindowUpdate(0, uint32(c.returned))
		c.returned = 0
	}
}

// returnBodyLocked lets the client send n bytes more of this body. If most of what has
// arrived is read, the window is doubled: it is what limits the client.
func (s *Stream) returnBodyLocked(n int64) {
	s.conn.returnLocked(n)
	if s.endReceived || s.closed {
		return
	}
	if s.returned += n; s.returned < s.window/4 {
		return
	}
	more := s.returned
	if int64(len(s.body)-s.bodyRead) <= s.window/4 && s.received > 2*s.window && s.window < receiveWindow {
		more += s.window
		s.window *= 2
	}
	s.receiveWindow += more
	_ = s.conn.framer.WriteWindowUpdate(s.id, uint32(more))
	s.returned = 0
}

// Read reads the request body. Before it waits, it sends 100 Continue if the client waits
// for that.
func (s *Stream) Read(p []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	for len(s.body) == s.bodyRead {
		if err := s.readErrorLocked(); err != nil {
			c.mu.Unlock()
			return 0, err
		}
		if s.expectsLocked() {
			s.continued = true
			c.appendHeadersLocked(s.id, appendStatus(nil, 100), 0)
			c.flushLocked()
			continue
		}
		s.canRead.Wait()
	}
	n := copy(p, s.body[s.bodyRead:])
	s.consumeLocked(n)
	s.returnBodyLocked(int64(n))
	c.flushLocked()
	c.mu.Unlock()
	return n, nil
}

// expectsLocked reports whether the client waits for 100 Continue.
func (s *Stream) expectsLocked() bool {
	return !s.continued && s.received == 0 && !s.headSent && s.Fields.MayHave(1<<http1.Expect)
}

// readErrorLocked returns why there is nothing more to read now, or nil if more may come.
func (s *Stream) readErrorLocked() error {
	switch {
	case s.err != nil: // what was received was dropped
		return s.err
	case s.endReceived:
		return io.EOF
	case s.readDeadline.IsZero():
		return nil
	}
	left := time.Until(s.readDeadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	if c := s.conn; s.readTimer == nil {
		s.readTimer = time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			s.canRead.Broadcast()
		})
	} else {
		s.readTimer.Reset(left)
	}
	return nil
}

// SetReadDeadline sets the deadline for reading the request body. A time in the past makes
// a pending read return.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.readDeadline = t
	s.canRead.Broadcast()
	return nil
}

// Trailer returns the trailer fields of the request, which are available at the end of
// its body. Fields that are not allowed in a trailer section are dropped.
func (s *Stream) Trailer() *http1.Fields { return &s.trailer }

// isMalformed reports whether the request is malformed, so that its stream has to be reset
// (RFC 9113 section 8.1.1).
func (s *Stream) isMalformed() bool {
	fault, ok := s.Err.(*http1.Error) //nolint:errorlint // it is never wrapped
	return ok && fault.Status == http1.ErrPseudoField.Status
}

// A Budget bounds the memory of the request bodies of all connections. It is safe for
// concurrent use.
type Budget interface {
	// Reserve reserves n bytes for a client that has reserved own bytes before, and reports
	// whether they were available.
	Reserve(client netip.Prefix, own, n int64) bool
	// Release releases n bytes that the client has reserved.
	Release(client netip.Prefix, n int64)
}

const (
	// unreadBase is how many bytes of bodies a connection may hold that were not read, beside
	// what it reserves from the Budget of the server, and unreadStep how many it reserves at a
	// time.
	unreadBase = 16 << 10
	unreadStep = 64 << 10
)

// unreadBytes counts the bytes of request bodies that a connection has received and no handler
// has read. It is guarded by the mutex of its connection.
type unreadBytes struct {
	bytes    int
	reserved int64
	fewer    sync.Cond // some were read
}

// awaitMemoryLocked waits until there is memory for n bytes more. The connection is not read meanwhile,
// so that its client has to wait, too. Handlers that would read what is unread have begun.
func (c *conn) awaitMemoryLocked(n int) {
	u := &c.unread
	if u.reserve(c, u.bytes+n) {
		return
	}
	c.mu.Unlock()
	c.beginAll()
	c.mu.Lock()
	for c.err == nil && !u.reserve(c, u.bytes+n) {
		if len(c.out.b) > 0 && !c.out.writing {
			c.flushLocked()
		} else {
			u.fewer.Wait()
		}
	}
}

// reserve makes sure that there is memory for so many bytes.
func (u *unreadBytes) reserve(c *conn, bytes int) bool {
	missing := int64(bytes) - unreadBase - u.reserved
	if missing <= 0 || c.server.Budget == nil {
		return true
	}
	missing = (missing + unreadStep - 1) / unreadStep * unreadStep
	if !c.server.Budget.Reserve(c.client(), max(u.reserved, 1), missing) {
		return false
	}
	u.reserved += missing
	return true
}

// add counts n bytes more, or fewer. It releases what is reserved beyond a step.
func (u *unreadBytes) add(c *conn, n int) {
	u.bytes += n
	if n >= 0 {
		return
	}
	if spare := u.reserved - max(0, int64(u.bytes)-unreadBase); spare >= 2*unreadStep || u.bytes == 0 && spare > 0 {
		c.server.Budget.Release(c.client(), spare)
		u.reserved -= spare
	}
	u.fewer.Signal()
}

// client returns the network for which memory is reserved.
func (c *conn) client() netip.Prefix {
	addr := c.peer.Addr().Unmap()
	network, _ := addr.Prefix(min(64, addr.BitLen())) // a unix socket has none
	return network
}
