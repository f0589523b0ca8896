package http2

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
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

// A Request is the head of a request.
type Request struct {
	Fields http1.Fields // without Host
	// Path includes the query; Protocol is that of an extended CONNECT (RFC 8441).
	Method, Authority, Path, Protocol string
	Length                            int64 // announced length of the body; 0 for none, -1 if it is unknown

	// Err is why the request must be refused: an *http1.Error, or nil. If its status is
	// 400, the request is malformed, and the stream is reset after the response.
	Err error

	scheme, host string
	hasRegular   bool  // a field that is no pseudo-header field was received
	announced    int64 // Content-Length, or -1
}

// keptHeader is the memory for field lines that is kept for further requests.
const keptHeader = 4 << 10

// setPseudo sets a pseudo-header field. Each may occur once, before all other fields (RFC
// 9113 section 8.3).
func (r *Request) setPseudo(f hpack.HeaderField) error {
	to := &r.Protocol
	switch f.Name {
	case ":method":
		to = &r.Method
	case ":path":
		to = &r.Path
	case ":authority":
		to = &r.Authority
	case ":scheme":
		to = &r.scheme
	case ":protocol":
	default:
		return http1.ErrPseudoField
	}
	if r.hasRegular || *to != "" || f.Value == "" {
		return http1.ErrPseudoField
	}
	*to = f.Value
	return nil
}

// setHost sets the value of Host.
func (r *Request) setHost(value string) error {
	if r.host != "" {
		return http1.ErrHostRepeated
	}
	if value == "" {
		return http1.ErrHost
	}
	r.host = value
	return nil
}

// setLength sets the value of Content-Length. Equal values may be repeated.
func (r *Request) setLength(value string) error {
	if len(value) > 18 || strings.Trim(value, "0123456789") != "" || value == "" {
		return http1.ErrContentLength
	}
	n, _ := strconv.ParseInt(value, 10, 64) // it has at most 18 digits
	if r.announced >= 0 && n != r.announced {
		return http1.ErrContentLengthRepeated
	}
	r.announced = n
	return nil
}

// complete checks the whole head (RFC 9113 section 8.3.1).
func (r *Request) complete() error {
	r.Authority = cmp.Or(r.Authority, r.host)
	switch {
	case r.Method == methodConnect && r.Protocol == "":
		return http1.ErrConnect
	case r.Method == "" || r.scheme == "" || r.Path == "":
		return http1.ErrPseudoField
	case r.Protocol != "" && (r.Method != methodConnect || r.Length == 0):
		return http1.ErrPseudoField
	case r.Protocol != "" && !strings.EqualFold(r.Protocol, "websocket"):
		return http1.ErrProtocol
	case !http1.ValidMethod(r.Method):
		return http1.ErrMethod
	case !http1.ValidTarget(r.Path), r.Path[0] != '/' && !(r.Path == "*" && r.Method == "OPTIONS"):
		return http1.ErrTarget
	case r.Authority == "":
		return http1.ErrHostMissing
	case !http1.ValidAuthority(r.Authority), r.host != "" && !strings.EqualFold(r.host, r.Authority):
		return http1.ErrHost
	case r.Length == 0 && r.announced > 0: // the stream has ended
		return http1.ErrContentLength
	}
	return nil
}

const methodConnect = "CONNECT"

// completeRequest completes the request after its header block.
func (s *Stream) completeRequest(b *headerBlock) {
	if len(b.cookie) > 0 {
		_ = s.Fields.AddHTTP2("cookie", string(b.cookie)) // its parts were validated
	}
	if s.Length = s.announced; b.endStream {
		s.Length = 0
	}
	switch err := b.err; {
	case err != nil:
		s.Err = err
	default:
		s.Err = s.complete()
	}
}

// Peer returns the remote address of the connection. It is the zero AddrPort for a unix
// socket.
func (s *Stream) Peer() netip.AddrPort { return s.conn.peer }

// Secure reports whether the connection uses TLS.
func (s *Stream) Secure() bool { return s.conn.tls }

// LocalAddr returns the local address of the connection.
func (s *Stream) LocalAddr() net.Addr { return s.conn.net.LocalAddr() }
