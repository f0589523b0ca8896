// Package decisions records what operators may query later: the decisions about recent requests, and the
// keys of each limit with most requests and most refusals. It has no influence on decisions, and knows
// no request but by what is recorded of it. All functions are safe for concurrent use.
package decisions

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// An Observer records requests and counts keys. It outlives generations.
type Observer struct {
	// Every is the minimum interval between allowed requests stored in a part of the ring: AllowedEvery,
	// except in tests.
	Every time.Duration

	recent   *ring
	counters *counters
	since    time.Time // minutes are counted from here, on the monotonic clock
}

// NewObserver returns an Observer that has recorded nothing, and counts keys in so many stripes.
func NewObserver(stripes int) *Observer {
	return &Observer{Every: AllowedEvery, recent: newRing(), counters: newCounters(stripes), since: time.Now()}
}

// Minute returns the number of the minute of t, for a Counter.
func (o *Observer) Minute(t time.Time) int64 { return int64(t.Sub(o.since) / time.Minute) }

// PlaceFor returns where to record a request that arrived then and had that outcome; Nowhere if Record need
// not be called. source is as in Request.
func (o *Observer) PlaceFor(began time.Time, result Outcome, source uint64) Place {
	return o.recent.placeFor(began, result, source, o.Every)
}

// Record stores a request.
func (o *Observer) Record(q *Request) { o.recent.record(q) }

// Counter returns the counter of a limit of a new generation, whose name is ROUTE.LIMIT.
func (o *Observer) Counter(name string, by *key.Spec) *Counter { return o.counters.counter(name, by) }

// KeepOnly keeps the counters of the generation that serves, and forgets all others.
func (o *Observer) KeepOnly(these []*Counter) { o.counters.keepOnly(these) }

// Find returns recent decisions, newest first: of the last 6144 requests that were refused, or would have
// been in shadow mode, as far as there were no more than 1000 in a second; of up to 1536 others, earlier
// or more in a second, of which each key and client has a share of 24 (in a flood, one each millisecond),
// so that a flood by one does not remove those of all others; and of the last 4096 others, or a sample of them. It delays requests only for the time of copying a part of the ring.
func (o *Observer) Find(q Query, v View) []Decision { return o.recent.find(q, v) }

// KeyByHash returns the key with the given hash in the log, if a recent request had it or one of these
// counters has counted it.
func (o *Observer) KeyByHash(hash string, v View, counters []*Counter) (limiter.Key, bool) {
	if k, found := o.recent.keyByHash(hash, v); found {
		return k, true
	}
	minute := o.Minute(time.Now())
	for _, c := range counters {
		for k := range c.entries(minute) {
			if v.KeyHash(k.Key) == hash {
				return k.Key, true
			}
		}
	}
	return limiter.Key{}, false
}

// LabelOf returns the texts of a key, if a recent request had it or c, which may be nil, has counted it.
func (o *Observer) LabelOf(k limiter.Key, c *Counter) (Label, bool) {
	if c != nil {
		for one := range c.entries(o.Minute(time.Now())) {
			if one.Key == k {
				return one.Value, true
			}
		}
	}
	return o.recent.labelOf(k)
}
