package proxy

import (
	"slices"
	"sync"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// topCounters is how many keys of a limit are counted at a time, and TopSlices over
	// how many minutes: a key that sends more than 1/64 of a limit's requests of a minute
	// is among them. A limit that every minute sees so many keys, and refuses so many,
	// takes 200 KB; most take a small part of that.
	topCounters = 64
	TopSlices   = 15
	// maxTops is of how many limits the keys are counted; of the others nobody is told.
	maxTops = 200
)

// tops count the keys of all limits of a process, beyond its configurations.
type tops struct {
	mu  sync.Mutex           // guards what follows
	all map[string]*topLimit // by ROUTE.LIMIT: those that are served
}

// A topLimit counts the keys of one limit.
type topLimit struct {
	key     string
	shapes  []key.Shape
	asked   *limiter.TopKeys[label] // by requests
	refused *limiter.TopKeys[label] // by those that it refused, or would have
}

func newTops() *tops { return &tops{all: map[string]*topLimit{}} }

// count gives the limits of a generation what counts their keys: what did so before, if
// the limit still counts by the same key. Nothing is counted before the first request.
func (t *tops) count(routes []*route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, r := range routes {
		for _, l := range r.limits {
			if n++; n > maxTops {
				return
			}
			if l.top = t.all[r.Name+"."+l.Name]; l.top == nil || l.top.key != l.Key.Name || !slices.Equal(l.top.shapes, l.Key.Shapes()) {
				l.top = &topLimit{
					key: l.Key.Name, shapes: l.Key.Shapes(),
					asked:   limiter.NewTopKeys[label](topCounters, TopSlices),
					refused: limiter.NewTopKeys[label](topCounters, TopSlices),
				}
			}
		}
	}
}

// serve makes the limits of a generation those whose counts go on. All others are
// forgotten.
func (t *tops) serve(routes []*route) {
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
