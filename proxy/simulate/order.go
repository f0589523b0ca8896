package simulate

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// window is the maximum time by which a line may be later than one whose request began
	// after it: lines are written at the end of requests.
	window = time.Minute
	// maxPending is the maximum number of buffered lines.
	maxPending = 1 << 16
)

// A mergeReader merges the records of all sources in the order in which their requests
// began.
type mergeReader struct {
	sources []*source
	heap    []*record
	free    []*record
	read    int64
	last    time.Time           // time of the last record returned
	seen    map[key.Origin]bool // origins present in the log
	Counts
}

// Counts are statistics about the logs.
type Counts struct {
	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Others    int64 `json:"others"`       // lines that are not requests
	Malformed int64 `json:"malformed"`    // lines that cannot be read
	Late      int64 `json:"late"`         // requests replayed later than their time, because their lines came too late
	Untimed   int64 `json:"untimed"`      // requests without a duration
	Hostless  int64 `json:"hostless"`     // requests without a host
	TooMany   int64 `json:"answered_429"` // requests with the logged status 429
}

// next returns the next request, nil at the end. The caller must release it.
func (o *mergeReader) next() (*record, error) {
	for {
		s := o.behind()
		if s == nil || len(o.heap) >= maxPending || len(o.heap) > 0 && o.heap[0].At.Before(s.newest.Add(-window)) {
			break
		}
		if err := o.fetch(s); err != nil {
			return nil, err
		}
	}
	if len(o.heap) == 0 {
		return nil, nil //nolint:nilnil // there is no more
	}
	r := o.pop()
	if r.At.Before(o.last) {
		o.Late++
	} else {
		o.last = r.At
	}
	return r, nil
}

// behind returns the source with the oldest position, nil when all have ended.
func (o *mergeReader) behind() *source {
	var least *source
	for _, s := range o.sources {
		if !s.ended && (least == nil || s.newest.Before(least.newest)) {
			least = s
		}
	}
	return least
}

// fetch reads one line of s.
func (o *mergeReader) fetch(s *source) error {
	r := o.take()
	k, err := s.next(r)
	if errors.Is(err, io.EOF) {
		s.ended = true
		o.release(r)
		return nil
	}
	if err != nil {
		return err
	}
	o.Lines++
	switch k {
	case other:
		o.Others++
	case malformed:
		o.Malformed++
	case request:
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
			o.seen[f.Origin] = true
		}
		o.push(r)
		return nil
	}
	o.release(r)
	return nil
}

func (o *mergeReader) take() *record {
	if n := len(o.free); n > 0 {
		r := o.free[n-1]
		o.free = o.free[:n-1]
		return r
	}
	return &record{}
}

// release returns a record for reuse.
func (o *mergeReader) release(r *record) { o.free = append(o.free, r) }

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
