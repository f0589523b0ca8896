package simulate

import (
	"container/heap"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

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
	held     recordHeap
	free     []*record
	read     int64
	lastTime time.Time           // time of the last record returned
	origins  map[key.Origin]bool // origins that the log has
	proceed  func(n int64) error // called before each step with the number of steps before
	steps    int64
	own      bool // a line is of Weir's own log
	Counts
}

// Counts are the numbers of lines read.
type Counts struct {
	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Others    int64 `json:"others"`       // lines that are not requests
	Malformed int64 `json:"malformed"`    // lines that cannot be parsed
	Late      int64 `json:"late"`         // requests evaluated later than they arrived, because their lines were too far behind
	Untimed   int64 `json:"untimed"`      // requests without a duration in the log
	Hostless  int64 `json:"hostless"`     // requests without a host in the log
	Samples   int64 `json:"samples"`      // lines of Weir's own log that stand for several requests
	TooMany   int64 `json:"answered_429"` // requests that had the status 429 in the log
}

// next returns the next request, or nil after the last one. The caller must pass it to release.
func (m *mergeReader) next() (*record, error) {
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
	r := heap.Pop(&m.held).(*record)
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
	r := m.newRecord()
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
		m.own = m.own || r.Own
		if r.Host == "" {
			m.Hostless++
		}
		for _, f := range r.Fields {
			m.origins[f.Origin] = true
		}
		m.read++
		r.order = m.read
		heap.Push(&m.held, r)
		return nil
	}
	m.recycle(r)
	return nil
}

func (m *mergeReader) newRecord() *record {
	if n := len(m.free); n > 0 {
		r := m.free[n-1]
		m.free = m.free[:n-1]
		return r
	}
	return &record{}
}

// recycle makes a record available for reuse.
func (m *mergeReader) recycle(r *record) { m.free = append(m.free, r) }

// A recordHeap has the records that are held, the first at 0.
type recordHeap []*record

func (h recordHeap) Len() int           { return len(h) }
func (h recordHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h recordHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *recordHeap) Push(r any)        { *h = append(*h, r.(*record)) }
func (h *recordHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return r
}
