package simulate

import (
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
	heap     []*record
	free     []*record
	read     int64
	lastTime time.Time           // time of the last record returned
	origins  map[key.Origin]bool // origins that the log has
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
	TooMany   int64 `json:"answered_429"` // requests that had the status 429 in the log
}

// next returns the next request, or nil after the last one. The caller must pass it to release.
func (o *mergeReader) next() (*record, error) {
	for {
		s := o.oldestSource()
		if s == nil || len(o.heap) >= maxPending || len(o.heap) > 0 && o.heap[0].At.Before(s.latest.Add(-maxDelay)) {
			break
		}
		if err := o.readLine(s); err != nil {
			return nil, err
		}
	}
	if len(o.heap) == 0 {
		return nil, nil // the end
	}
	r := o.pop()
	if r.At.Before(o.lastTime) {
		o.Late++
	} else {
		o.lastTime = r.At
	}
	return r, nil
}

// oldestSource returns the source that has been read least far in time, or nil if all have ended.
func (o *mergeReader) oldestSource() *source {
	var least *source
	for _, s := range o.sources {
		if !s.ended && (least == nil || s.latest.Before(least.latest)) {
			least = s
		}
	}
	return least
}

// readLine reads one line of s.
func (o *mergeReader) readLine(s *source) error {
	r := o.newRecord()
	k, err := s.next(r)
	if errors.Is(err, io.EOF) {
		s.ended = true
		o.recycle(r)
		return nil
	}
	if err != nil {
		return err
	}
	o.Lines++
	switch k {
	case kindOther:
		o.Others++
	case kindMalformed:
		o.Malformed++
	case kindRequest:
		o.Requests++
		if r.Took == 0 {
			o.Untimed++
		}
		if r.Status == http.StatusTooManyRequests {
			o.TooMany++
		}
		if r.Host == "" {
			o.Hostless++
		}
		for _, f := range r.Fields {
			o.origins[f.Origin] = true
		}
		o.push(r)
		return nil
	}
	o.recycle(r)
	return nil
}

func (o *mergeReader) newRecord() *record {
	if n := len(o.free); n > 0 {
		r := o.free[n-1]
		o.free = o.free[:n-1]
		return r
	}
	return &record{}
}

// recycle makes a record available for reuse.
func (o *mergeReader) recycle(r *record) { o.free = append(o.free, r) }

func (o *mergeReader) push(r *record) {
	o.read++
	r.order = o.read
	o.heap = append(o.heap, r)
	for i := len(o.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !o.heap[i].before(o.heap[parent]) {
			return
		}
		o.heap[i], o.heap[parent] = o.heap[parent], o.heap[i]
		i = parent
	}
}

func (o *mergeReader) pop() *record {
	first := o.heap[0]
	last := len(o.heap) - 1
	o.heap[0], o.heap[last] = o.heap[last], nil
	o.heap = o.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if o.heap[child].before(o.heap[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		o.heap[i], o.heap[least] = o.heap[least], o.heap[i]
		i = least
	}
}
