package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxLine is the maximum length of a line in bytes.
const maxLine = 1 << 20

// A Format is the format of the lines of a log.
type Format string

// The formats.
const (
	Auto     Format = "auto" // JSON if a line begins with a brace, otherwise combined
	JSON     Format = "json"
	Combined Format = "combined" // or common, which begins as that does
)

// A Log is one log to read.
type Log struct {
	Name string
	io.Reader
}

// A source reads the records of one log.
type source struct {
	name    string
	in      *bufio.Reader
	format  Format
	json    *jsonReader
	latest  time.Time // the latest time at which a line so far was written
	horizon time.Time // the latest possible time of a line; zero for none
	ended   bool
	lines   int64
}

// open starts reading a log. If its first bytes are those of gzip, it is decompressed.
func open(l Log, format Format, n *Names) (*source, error) {
	in := bufio.NewReaderSize(l.Reader, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		in = bufio.NewReaderSize(plain, 1<<16)
	}
	unchecked := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)} // by who logs
	json := &jsonReader{names: n, options: unchecked}
	return &source{name: l.Name, in: in, format: format, json: json}, nil
}

// next reads the next line into r, which is empty. It returns io.EOF after the last one.
func (s *source) next(r *record) (lineKind, error) {
	for {
		whole, err := s.readLine(r)
		if err != nil {
			return 0, err
		}
		r.line = bytes.TrimRight(r.line, "\r\n")
		if whole && len(r.line) == 0 {
			continue
		}
		s.lines++
		if !whole {
			return kindMalformed, nil
		}
		k := s.parse(r)
		if k == kindRequest {
			written := cmp.Or(r.ended, r.At.Add(r.Took))
			// A time that is not possible would move the clock of a Replay, and with it all that follow.
			if r.At.Unix() < 0 || !s.horizon.IsZero() && (written.After(s.horizon) || r.At.After(s.horizon)) {
				return kindMalformed, nil
			}
			if written.After(s.latest) {
				s.latest = written
			}
		}
		return k, nil
	}
}

// readLine reads a line; whole is false if it is too long, in which case r.line is only its beginning.
func (s *source) readLine(r *record) (whole bool, err error) {
	for {
		piece, err := s.in.ReadSlice('\n')
		if len(r.line) <= maxLine {
			r.line = append(r.line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(r.line) == 0:
			return false, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return false, fmt.Errorf("%s: line %d: %w", s.name, s.lines+1, err)
		}
		return len(r.line) <= maxLine, nil
	}
}

// parse parses r.line.
func (s *source) parse(r *record) lineKind {
	start := bytes.TrimLeft(r.line, " \t\ufeff")
	if s.format == JSON || s.format == Auto && len(start) > 0 && start[0] == '{' {
		if len(start) < len(r.line) {
			r.line = append(r.line[:0], start...)
		}
		return s.json.parse(r)
	}
	return s.parseCombined(r)
}

// A boundedReader reads at most *left bytes, if there is a bound, and calls Pace before each read. It bounds the
// uncompressed data: a few bytes of gzip can decompress to many.
type boundedReader struct {
	in   io.Reader
	left *int64 // shared by all logs
	Bounds
}

// Read implements io.Reader.
func (r *boundedReader) Read(p []byte) (int, error) {
	if r.Pace != nil {
		if err := r.Pace(); err != nil {
			return 0, err
		}
	}
	n, err := r.in.Read(p[:min(len(p), readSize)])
	if *r.left -= int64(n); r.MaxBytes > 0 && *r.left < 0 {
		return 0, ErrTooLong
	}
	return n, err
}

// A record is one line of a log and the request parsed from it.
type record struct {
	proxy.LoggedRequest
	isSample bool   // it stands for several requests
	line     []byte // strings of the request share its memory
	ended    time.Time
	decided  time.Time // when the limits decided, by the clock of the store; zero if unknown
}

// A lineKind is the kind of a line.
type lineKind uint8

const (
	kindRequest   lineKind = iota
	kindOther              // well-formed, but not a request: another log message
	kindMalformed          // not a line of a known format
)

// compare returns -1 if the request of r was decided before that of o, and 1 if it was decided later. Those that limits
// refused are the last of their millisecond: the others took the permits that they lacked.
func (r *record) compare(o *record) int {
	late := func(r *record) int {
		if r.decided.IsZero() || r.Limit == "" {
			return 0
		}
		return 1
	}
	return cmp.Or(r.At.Compare(o.At), cmp.Compare(late(r), late(o)))
}

// reset empties r for another line, which may be of another client.
func (r *record) reset() {
	*r = record{LoggedRequest: proxy.LoggedRequest{Fields: reuse.Memory(r.Fields)}, line: reuse.Memory(r.line)}
}

const (
	// maxDelay is the maximum delay of a line relative to a line of a later request: a line is
	// written when its request has ended.
	maxDelay = time.Minute
	// maxPending is the maximum number of lines that are held to be ordered.
	maxPending = 1 << 16
)

// A mergeReader merges the records of all sources in the order of their requests.
type mergeReader struct {
	sources  []*source
	held     []*record           // ordered
	free     sync.Pool           // of *record
	lastTime time.Time           // time of the last record returned
	origins  map[key.Origin]bool // origins that the log has
	proceed  func(n int64) error // called before each step with the number of steps before
	steps    int64
	own      bool // a line is of Weir's own log
	Counts
}

// Counts are the numbers of lines read.
type Counts struct {
	view.LogCounts
	Samples int64 `json:"samples"` // lines of Weir's own log that stand for several requests
}

// next returns the next request, or nil after the last one. The caller must recycle it.
func (m *mergeReader) next() (r *record, err error) {
	for {
		if err := m.proceed(m.steps); err != nil {
			return nil, err
		}
		m.steps++
		s := m.oldestSource()
		if s == nil || len(m.held) >= maxPending || len(m.held) > 0 && m.held[0].At.Before(s.latest.Add(-maxDelay)) {
			break
		}
		if err := m.readLine(s); err != nil {
			return nil, err
		}
	}
	if len(m.held) == 0 {
		return nil, nil // the end
	}
	r, m.held = m.held[0], m.held[1:]
	if r.At.Before(m.lastTime) {
		m.Late++
	} else {
		m.lastTime = r.At
	}
	return r, nil
}

// oldestSource returns the source that has been read least far in time, or nil if all have ended.
func (m *mergeReader) oldestSource() *source {
	var least *source
	for _, s := range m.sources {
		if !s.ended && (least == nil || s.latest.Before(least.latest)) {
			least = s
		}
	}
	return least
}

// readLine reads one line of s.
func (m *mergeReader) readLine(s *source) error {
	r := m.free.Get().(*record)
	k, err := s.next(r)
	if errors.Is(err, io.EOF) {
		s.ended = true
		m.recycle(r)
		return nil
	}
	if err != nil {
		return err
	}
	m.Lines++
	switch k {
	case kindOther:
		m.Others++
	case kindMalformed:
		m.Malformed++
	case kindRequest:
		m.Requests++
		if r.Took == 0 {
			m.Untimed++
		}
		if r.Status == http.StatusTooManyRequests {
			m.TooMany++
		}
		if r.isSample {
			m.Samples++
		}
		if r.Host == "" {
			m.Hostless++
		}
		m.own = m.own || r.Own
		for _, f := range r.Fields {
			m.origins[f.Origin] = true
		}
		i, _ := slices.BinarySearchFunc(m.held, r, func(other, r *record) int { return cmp.Or(other.compare(r), -1) })
		m.held = slices.Insert(m.held, i, r)
		return nil
	}
	m.recycle(r)
	return nil
}

// recycle makes r available for another line.
func (m *mergeReader) recycle(r *record) {
	r.reset()
	m.free.Put(r)
}
