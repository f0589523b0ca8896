package decisions

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
	// MaxCounters is the maximum number of limits whose keys should be counted.
	MaxCounters = 200
)

// counters holds the counters of all limits. It outlives generations.
type counters struct {
	mu  sync.Mutex          // guards what follows
	all map[string]*Counter // by ROUTE.LIMIT; limits of the current generation
}

// A Counter counts the keys of one limit. A nil Counter counts nothing.
type Counter struct {
	name     string // ROUTE.LIMIT
	key      string
	shapes   []key.Shape
	requests *limiter.TopKeys[Label] // by number of requests
	refused  *limiter.TopKeys[Label] // by number of refusals, including those by shadow mode
}

func newCounters() *counters { return &counters{all: map[string]*Counter{}} }

// counter returns the counter of a limit, whose name is ROUTE.LIMIT. A limit keeps the counter it had
// before if it still counts by the same key. A counter uses no memory before the first request.
func (c *counters) counter(name string, by *key.Spec) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if had := c.all[name]; had != nil && had.key == by.Name && slices.Equal(had.shapes, by.Shapes()) {
		return had
	}
	return &Counter{
		name: name, key: by.Name, shapes: by.Shapes(),
		requests: limiter.NewTopKeys[Label](topCounters, TopSlices),
		refused:  limiter.NewTopKeys[Label](topCounters, TopSlices),
	}
}

// keepOnly keeps these counters, and removes all others.
func (c *counters) keepOnly(these []*Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.all)
	for _, one := range these {
		c.all[one.name] = one
	}
}

// Count counts a request by its key, in a minute as Observer.Minute returns. fill sets the texts of the
// key.
func (c *Counter) Count(minute int64, k limiter.Key, fill func(l *Label)) {
	if c != nil {
		c.requests.Observe(minute, k, fill)
	}
}

// CountRefused counts a request by its key that Count has counted, and that was refused, or would have
// been in shadow mode.
func (c *Counter) CountRefused(minute int64, k limiter.Key, fill func(l *Label)) {
	if c != nil {
		c.refused.Observe(minute, k, fill)
	}
}

// entries returns an iterator over the keys that were counted in the last minutes.
func (c *Counter) entries(minute int64) func(yield func(limiter.HeavyHitter[limiter.Key, Label]) bool) {
	return func(yield func(limiter.HeavyHitter[limiter.Key, Label]) bool) {
		for _, t := range []*limiter.TopKeys[Label]{c.refused, c.requests} {
			for _, k := range t.Last(minute, TopSlices).Keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}
