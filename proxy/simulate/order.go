package simulate

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// window is how much later a line may stand than one that began after it: a line is
	// written when its request has ended.
	window = time.Minute
	// maxPending bounds how many lines wait for earlier ones.
	maxPending = 1 << 16
)

// A mergeReader brings the records of all sources into the order in which their requests
// came.
type mergeReader struct {
	sources []*source
	heap    []*record
	free    []*record
	read    int64
	last    time.Time           // of the record that was given last
	seen    map[key.Origin]bool // of which the log tells
	Counts
}

// Counts are what was read.
type Counts struct {
	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Others    int64 `json:"others"`       // lines that are no requests
	Malformed int64 `json:"malformed"`    // lines that cannot be read
	Late      int64 `json:"late"`         // requests taken later than they came, for their lines stood too far behind
	Untimed   int64 `json:"untimed"`      // requests of which the log does not say how long they took
	Hostless  int64 `json:"hostless"`     // nor for which host they were
	TooMany   int64 `json:"answered_429"` // requests that were answered with 429 when they were logged
}

// next is the next request, nil behind the last one. It is to be given back to release.
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

// behind is the source that has been read the least far, nil when all have ended.
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

// release takes a record back, to be used again.
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
