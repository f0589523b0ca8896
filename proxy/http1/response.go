package http1

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Response is the head of a response. Its strings refer to the buffer of the
// connection and are valid until Call.Release.
type Response struct {
	Fields  Fields
	Status  int
	Minor   int     // minor version: 1 or 0
	Framing Framing // of the body
	Close   bool    // the sender closes the connection after this response

	parser fieldParser
}

// Parse parses the head of a response to a request with this method. It is used like
// Request.Parse.
func (r *Response) Parse(buf []byte, method string, l *Limits) (n int, err error) {
	if r.parser.atStart() {
		if r.parser.next, err = r.startLine(buf, l); r.parser.next == 0 || err != nil {
			return 0, err
		}
	}
	done, err := r.parser.parse(buf, &r.Fields, fieldLimits{l.Head, l.Fields, l.lenient})
	if !done {
		return 0, err
	}
	r.Framing, err = incomingFraming(message{fields: &r.Fields, minor: r.Minor, method: method, status: r.Status})
	if err != nil {
		return 0, err
	}
	r.Close = r.Framing.Kind == UntilClose || !persists(&r.Fields, r.Minor)
	if r.Status == 205 && r.Framing.Kind != NoBody && r.Framing.Length != 0 {
		// It must have no body (RFC 9110 section 15.3.6).
		r.Framing, r.Close = Framing{NoBody, 0}, true
	}
	return r.parser.next, nil
}

// keepAliveTimeout returns how long the connection can be used again according to
// Keep-Alive: timeout=N (RFC 2068 section 19.7.1.1): one second less than the upstream
// keeps it open, so that a request does not meet its end. It returns 0 if r does not say,
// and 1 ns for a second or less.
func (r *Response) keepAliveTimeout() time.Duration {
	f := &r.Fields
	for i := range f.lines {
		if f.lines[i].id != KeepAlive { // includes dropped lines
			continue
		}
		for parameter := range Elements(f.value(&f.lines[i])) {
			name, text, _ := strings.Cut(parameter, "=")
			if seconds, err := strconv.ParseUint(text, 10, 31); err == nil && equalFoldLower(name, "timeout") {
				return max(time.Duration(seconds)*time.Second-time.Second, 1)
			}
		}
	}
	return 0
}

// Reset prepares r for another head.
func (r *Response) Reset() {
	*r = Response{Fields: r.Fields}
	r.Fields.Reset()
}

// startLine parses the status line and returns its length, or 0 if it is incomplete. An
// empty line may precede it. The space before an empty reason phrase may be missing. Some
// servers do so.
func (r *Response) startLine(b []byte, l *Limits) (int, error) {
	const like, usual = "HTTP/1.x 000", "HTTP/1.1 200 OK\r\n"
	if len(b) >= len(usual) && string(b[:len(usual)]) == usual {
		r.Status, r.Minor = 200, 1
		return len(usual), nil
	}
	limits, skipped := fieldLimits{lenient: l.lenient}, 0
	if len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
		n, err := lineEnd(b, 0, limits)
		if n == 0 {
			return 0, err
		}
		skipped, b = n, b[n:]
	}
	switch alike := countLike(b, like); {
	case alike == len(b):
		return 0, nil
	case alike < len(like):
		return 0, ErrStatusLine
	}
	r.Minor = int(b[7] - '0')
	r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
	if r.Status < 100 {
		return 0, ErrStatusLine
	}
	end := len(like)
	if b[end] == ' ' {
		end += valueLength(b[end:])
	}
	switch {
	case end > l.Head:
		return 0, ErrTooLarge
	case end == len(b):
		return 0, nil
	}
	if b[end] != '\r' && b[end] != '\n' {
		return 0, ErrStatusLine
	}
	n, err := lineEnd(b, end, limits)
	if n == 0 {
		return 0, err
	}
	return skipped + n, nil
}

// A DateCache holds the value of the field Date, rendered once a second.
type DateCache struct{ current atomic.Pointer[renderedDate] }

type renderedDate struct {
	second int64
	text   string
}

// At returns the value for a time.
func (d *DateCache) At(now time.Time) string {
	r := d.current.Load()
	if r == nil || r.second != now.Unix() {
		r = &renderedDate{now.Unix(), now.UTC().Format(http.TimeFormat)}
		d.current.Store(r)
	}
	return r.text
}

// last returns the value that At has returned last. It does not read the clock.
func (d *DateCache) last() string { return d.current.Load().text }

const (
	// maxInterimBytes bounds the heads of all interim responses to one request.
	maxInterimBytes = 64 << 20
	// maxInterimTimeouts is the maximum wait for a final response after the first interim
	// one, as a multiple of Client.ResponseTimeout.
	maxInterimTimeouts = 10
)

// An interimState counts the 1xx responses to one request (RFC 9110 section 15.2).
type interimState struct {
	relayed, bytes int
	since          time.Duration // when the first one arrived after the request was sent; 0 for none
}

// relayInterim forwards a 1xx response, except 100, and prepares for the next head. It
// drops those beyond maxInterim, which an upstream sends to keep a connection alive.
func (c *Call) relayInterim() error {
	if c.interim.bytes += c.in.r; c.interim.bytes > maxInterimBytes {
		return ErrTooManyInterim
	}
	if c.Response.Status != 100 && c.interim.relayed < maxInterim {
		c.interim.relayed++
		switch {
		case c.Interim != nil:
			c.Interim(&c.Response)
		case c.x != nil:
			h := c.x.Interim(c.Response.Status)
			c.Response.Fields.StripHopByHop()
			h.AddFields(&c.Response.Fields)
			_ = c.x.SendInterim() // if it fails, the final response fails, too
		}
	}
	c.in.nextMessage()
	c.Response.Reset()
	return nil
}

// restartResponseTimeout gives the upstream more time after an interim response. While
// the request is being sent there is no deadline, and the upload sets it at its end.
func (c *Call) restartResponseTimeout() error {
	timeout := c.client.ResponseTimeout
	if timeout == 0 || !c.requestWritten && !c.upload.isSent() {
		return nil
	}
	now := c.client.now()
	if c.interim.since == 0 {
		c.interim.since = now
	}
	left := c.interim.since + maxInterimTimeouts*timeout - now
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	c.setReadDeadline(min(timeout, left))
	return nil
}
