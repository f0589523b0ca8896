package http2

import (
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/http1"
)

// stageSize is how much of a response body waits in its stream for the end of the
// handler. A response that is not longer is sent as a whole.
const stageSize = 8 << 10

// A response is the state of the response. It belongs to the goroutine that writes it.
type response struct {
	status   int
	begun    bool // Begin was called
	headSent bool // the head was added to the output, so that it cannot be replaced
	noBody   bool // the method or the status allows no body
	ended    bool // End was called
	hasDate  bool
	left     int64  // bytes of the body still to be written; -1 if that is unknown
	sent     int64  // bytes of the body that were written
	head     []byte // the header block, until it is sent
	data     []byte // a part of the body that is not sent yet
	trailer  []byte // the header block of the trailer section
	headErr  error  // why the response cannot be sent
}

// emptied returns the response of no request, with the memory of r.
func (r *response) emptied() response {
	return response{
		head: keep(r.head, keptHeader), data: keep(r.data, 2*stageSize), trailer: keep(r.trailer, keptHeader),
	}
}

// keep returns the memory of b if that is not more than so many bytes.
func keep(b []byte, most int) []byte {
	if cap(b) > most {
		return nil
	}
	return reuse.Memory(b)
}

// Start begins the final response, whose fields are added by Add. A response that was
// begun before and not sent is dropped.
func (s *Stream) Start(status int) {
	if s.headSent {
		s.headErr = http1.ErrResponseState
		return
	}
	s.response = s.response.emptied()
	s.begun, s.status, s.left = true, status, -1
	if status < 200 || status > 599 {
		s.headErr = http1.ErrOutgoing
		return
	}
	s.head = appendStatus(s.head, status)
	s.noBody = s.Method == "HEAD" || status == 204 || status == 304
}

// Add adds a field line to the response.
func (s *Stream) Add(name, value string) {
	s.add(http1.Field{ID: http1.LookupName(name), Name: name, Value: value})
}

// AddKnown adds a field line with a well-known name.
func (s *Stream) AddKnown(n http1.Name, value string) { s.add(http1.Field{ID: n, Value: value}) }

func (s *Stream) add(f http1.Field) {
	s.hasDate = s.hasDate || f.ID == http1.Date
	var err error
	if s.head, err = s.conn.server.names.appendField(s.head, f); err != nil {
		s.headErr = err
	}
}

// Send completes the response with this body.
func (s *Stream) Send(body []byte) error {
	if err := s.startBody(int64(len(body))); err != nil {
		return err
	}
	if _, err := s.Write(body); err != nil {
		return err
	}
	return s.End(nil)
}

// Begin completes the head of the response. length is the length of the body, or -1 if it
// is unknown. Nothing is sent yet.
func (s *Stream) Begin(status int, f *http1.Fields, length int64) error {
	s.Start(status)
	for line := range f.All() {
		s.add(line)
	}
	return s.startBody(length)
}

// startBody completes the head.
func (s *Stream) startBody(length int64) error {
	if s.headErr != nil {
		return s.headErr
	}
	if !s.hasDate {
		s.AddKnown(http1.Date, s.conn.server.date.At(time.Now()))
	}
	if s.left = length; length >= 0 && s.status != 204 {
		var digits [20]byte
		n := strconv.AppendInt(digits[:0], length, 10)
		s.head = append(s.head, s.conn.server.names[http1.ContentLength]...)
		s.head = append(append(s.head, byte(len(n))), n...)
	}
	return nil
}

// Write writes a part of the response body. A short part is sent only by Flush, or when
// the handler has returned.
func (s *Stream) Write(p []byte) (int, error) {
	switch {
	case !s.begun || s.ended:
		return 0, http1.ErrResponseState
	case s.noBody || len(p) == 0:
		return len(p), nil
	case s.left >= 0 && int64(len(p)) > s.left:
		return 0, http1.ErrBodyTooLong
	case s.left >= 0:
		if s.left -= int64(len(p)); s.left == 0 {
			s.beforeEnd()
		}
	}
	s.response.sent += int64(len(p))
	if len(s.data)+len(p) <= stageSize {
		s.data = append(s.data, p...)
		return len(p), nil
	}
	return len(p), s.push(p)
}

// Flush sends what was written.
func (s *Stream) Flush() error {
	if !s.begun || s.headErr != nil {
		return s.headErr
	}
	err := s.push(nil)
	s.conn.flush()
	return err
}

// End completes the response with these trailer fields; nil for none. It is sent when the
// handler has returned.
func (s *Stream) End(trailer *http1.Fields) error {
	switch {
	case !s.begun || s.headErr != nil:
		return http1.ErrResponseState
	case s.left > 0 && !s.noBody:
		return http1.ErrBodyTooShort
	}
	s.beforeEnd()
	if trailer != nil {
		trailer.DropForbiddenTrailers()
		for f := range trailer.All() {
			var err error
			if s.response.trailer, err = s.conn.server.names.appendField(s.response.trailer, f); err != nil {
				return err
			}
		}
	}
	s.ended = true
	return nil
}

// beforeEnd calls BeforeEnd.
func (s *Stream) beforeEnd() {
	before := s.BeforeEnd
	if before == nil {
		return
	}
	s.BeforeEnd = nil
	before(func() {
		if !s.noBody && s.left != 0 { // otherwise the end follows at once
			_ = s.Flush() // a client that is gone is noticed later
		}
	})
}

// Informational sends a 1xx response. If the client does not read, it waits, so that the upstream
// has to wait, too.
func (s *Stream) Informational(status int, f *http1.Fields) {
	if s.begun || status < 100 || status > 199 || status == 101 {
		return
	}
	head := appendStatus(nil, status)
	for line := range f.All() {
		var err error
		if head, err = s.conn.server.names.appendField(head, line); err != nil {
			return
		}
	}
	s.conn.mu.Lock()
	w := sendWait{s: s}
	if w.room(len(head)) == nil {
		s.continued = true // it need not be told any more to continue
		s.conn.appendHeadersLocked(s.id, head, 0)
	}
	w.stop()
	s.conn.flushLocked()
	s.conn.mu.Unlock()
}

// Committed reports whether a part of the final response may have been sent.
func (s *Stream) Committed() bool { return s.headSent }

// BodyBytesSent returns the number of bytes of the response body that were written.
func (s *Stream) BodyBytesSent() int64 { return s.response.sent }

// appendHeadersLocked appends a header block in as many frames as it needs.
func (c *conn) appendHeadersLocked(stream uint32, block []byte, flags http2.Flags) {
	t := http2.FrameHeaders
	for {
		piece := block[:min(len(block), c.peerFrame)]
		if block = block[len(piece):]; len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.out.appendFrame(t, flags, stream, len(piece))
		c.out.b = append(c.out.b, piece...)
		if len(block) == 0 {
			return
		}
		t, flags = http2.FrameContinuation, 0
	}
}
