package decisions

import (
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

const (
	// TopSlices is the number of minutes for which keys are counted.
	TopSlices = 15
	// MaxCounters is the maximum number of limits whose keys should be counted.
	MaxCounters = 200
	// countersMemory bounds the memory of the counters of all limits together, in bytes, which the allocator
	// rounds up to 36 MB at most; a tenth more for each further processor whose requests wait for those of
	// others when they are counted. It is used up only if all limits see, and refuse, that many keys in each minute; a
	// limit with few keys uses 120 KB.
	countersMemory = 28 << 20
	// maxCounted is the maximum number of keys of a limit that are counted at a time. A key with more
	// than 1/512 of a limit's requests in a minute is among them.
	maxCounted = 512
	// keyMemory is the memory of a key that is counted in each minute, both among the requests and among
	// the refusals, in bytes; see limiter.TopKeys.
	keyMemory = 2 * ((TopSlices-1)*(32+labelBytes+1) + 80 + labelBytes + 1)
)

// countedKeys returns the number of keys of a limit that are counted at a time if there are so many
// limits: 512 up to 25 limits, 65 with MaxCounters.
func countedKeys(limits int) int { return min(countersMemory/keyMemory/max(limits, 1), maxCounted) }

// counters holds the counters of all limits. It outlives generations.
type counters struct {
	stripes int

	mu  sync.Mutex          // guards what follows
	all map[string]*Counter // by ROUTE.LIMIT; limits of the current generation
}

// A Counter counts the keys of one limit. A nil Counter counts nothing.
type Counter struct {
	name     string // ROUTE.LIMIT
	key      string
	shapes   []key.Shape
	stripes  int
	requests *limiter.TopKeys[Label] // by number of requests
	refused  *limiter.TopKeys[Label] // by number of refusals, including those by shadow mode
	sends    *limiter.TopKeys[Label] // by number of requests that were not refused, over sendSlices times sendEvery; nil if not counted
	every    int64                   // minutes of a slice of sends
}

const (
	// countedSends is the number of keys of a limit whose sends are counted at a time, and sendSlices that of the
	// parts of its window. A limit takes 150 KB.
	countedSends = 128
	sendSlices   = 12
)

// WithSends returns c as a counter that also counts requests over a window, by those that were not refused.
func (c *Counter) WithSends(window time.Duration) *Counter {
	every := max(1, int64((window+(sendSlices-1)*time.Minute-1)/((sendSlices-1)*time.Minute)))
	if c.every == every {
		return c
	}
	with := *c
	with.sends, with.every = limiter.NewTopKeys[Label](countedSends, sendSlices, c.stripes), every
	return &with
}

func newCounters(stripes int) *counters {
	return &counters{stripes: stripes, all: map[string]*Counter{}}
}

// counter returns the counter of a limit, whose name is ROUTE.LIMIT. A limit keeps the counter it had
// before if it still counts by the same key. A counter uses no memory before the first request.
func (c *counters) counter(name string, by *key.Spec) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if had := c.all[name]; had != nil && had.key == by.Name && slices.Equal(had.shapes, by.Shapes()) {
		return had
	}
	return &Counter{
		name: name, key: by.Name, shapes: by.Shapes(), stripes: c.stripes,
		requests: limiter.NewTopKeys[Label](countedKeys(MaxCounters), TopSlices, c.stripes),
		refused:  limiter.NewTopKeys[Label](countedKeys(MaxCounters), TopSlices, c.stripes),
	}
}

// keepOnly keeps these counters, and removes all others. The memory is divided among them; a minute that
// has begun keeps its share.
func (c *counters) keepOnly(these []*Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.all)
	keys := countedKeys(len(these))
	for _, one := range these {
		c.all[one.name] = one
		one.requests.Resize(keys)
		one.refused.Resize(keys)
	}
}

// Count counts a request by its key, in a minute as Observer.Minute returns, in the stripe of the
// processor. fill sets the texts of the key.
func (c *Counter) Count(own int, minute int64, k limiter.Key, fill func(l *Label)) {
	if c != nil {
		c.requests.Observe(own, minute, k, fill)
	}
}

// CountSend counts a request by its key that was not refused.
func (c *Counter) CountSend(own int, minute int64, k limiter.Key, fill func(l *Label)) {
	if c != nil && c.sends != nil {
		c.sends.Observe(own, minute/c.every, k, fill)
	}
}

// CountRefused counts a request by its key that Count has counted, and that was refused, or would have
// been in shadow mode.
func (c *Counter) CountRefused(own int, minute int64, k limiter.Key, fill func(l *Label)) {
	if c != nil {
		c.refused.Observe(own, minute, k, fill)
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
