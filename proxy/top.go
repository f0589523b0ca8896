package proxy

import (
	"slices"
	"sync"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// topCounters is the number of keys of a limit that are counted at a time, and TopSlices the
	// number of minutes that are kept. A key that sends more than 1/64 of a limit's requests in a
	// minute is among them. A limit that sees and refuses that many keys every minute uses 200 KB;
	// most use much less.
	topCounters = 64
	TopSlices   = 15
	// maxTopLimits is the maximum number of limits whose keys are counted.
	maxTopLimits = 200
)

// tops holds the key counts of all limits. It outlives generations.
type tops struct {
	mu  sync.Mutex           // guards what follows
	all map[string]*topLimit // by ROUTE.LIMIT; limits of the current generation
}

// A topLimit counts the keys of one limit.
type topLimit struct {
	key      string
	shapes   []key.Shape
	requests *limiter.TopKeys[label] // by number of requests
	refused  *limiter.TopKeys[label] // by number of refusals, including those by shadow mode
}

func newTops() *tops { return &tops{all: map[string]*topLimit{}} }

// setCounters sets the counters of the limits of a generation. A limit keeps the counters it had before
// if it still counts by the same key. Counters use no memory before the first request.
func (t *tops) setCounters(routes []*route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, r := range routes {
		for _, l := range r.limits {
			if n++; n > maxTopLimits {
				return
			}
			if l.top = t.all[r.Name+"."+l.Name]; l.top == nil || l.top.key != l.Key.Name || !slices.Equal(l.top.shapes, l.Key.Shapes()) {
				l.top = &topLimit{
					key: l.Key.Name, shapes: l.Key.Shapes(),
					requests: limiter.NewTopKeys[label](topCounters, TopSlices),
					refused:  limiter.NewTopKeys[label](topCounters, TopSlices),
				}
			}
		}
	}
}

// keepOnly keeps the counters of the limits of a generation and removes all others.
func (t *tops) keepOnly(routes []*route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.all)
	for _, r := range routes {
		for _, l := range r.limits {
			if l.top != nil {
				t.all[r.Name+"."+l.Name] = l.top
			}
		}
	}
}
