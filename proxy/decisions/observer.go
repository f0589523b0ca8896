// Package decisions records what operators may query later: the decisions about recent requests, and the
// keys of each limit with most requests and most refusals. It has no influence on decisions, and knows
// no request but by what is recorded of it. All functions are safe for concurrent use.
package decisions

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// An Observer records requests and counts keys. It outlives generations.
type Observer struct {
	// Every is the minimum interval between allowed requests stored in a part of the ring: AllowedEvery,
	// except in tests.
	Every time.Duration

	ring
	stripes int       // in which keys are counted
	since   time.Time // minutes are counted from here, on the monotonic clock

	mu       sync.Mutex          // guards what follows
	counters map[string]*Counter // by ROUTE.LIMIT; limits of the current generation
}

// NewObserver returns an Observer that has recorded nothing, and counts keys in so many stripes.
func NewObserver(stripes int) *Observer {
	return &Observer{Every: AllowedEvery, ring: ring{seed: maphash.MakeSeed()}, stripes: stripes, since: time.Now(), counters: map[string]*Counter{}}
}

// Minute returns the number of the minute of t, for a Counter.
func (o *Observer) Minute(t time.Time) int64 { return int64(t.Sub(o.since) / time.Minute) }

// KeyByHash returns the key with the given hash in the log, if a recent request had it or one of these
// counters has counted it.
func (o *Observer) KeyByHash(hash string, v Naming, counters []*Counter) (limiter.Key, bool) {
	if k, found := o.keyByHash(hash, v); found {
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
	return o.labelOf(k)
}

// maxTopKeys is the maximum number of keys of a limit that are returned.
const maxTopKeys = 1000

// Complete returns q with its defaults.
func Complete(q view.TopQuery) view.TopQuery {
	if q.Minutes <= 0 || q.Minutes > TopSlices {
		q.Minutes = TopSlices
	}
	q.N = min(cmp.Or(max(q.N, 0), 20), maxTopKeys)
	return q
}

// Top returns the keys with most requests and with most refusals of a limit until a minute, as Observer.Minute
// returns. The caller sets the names of the limit.
func (c *Counter) Top(minute int64, q view.TopQuery, v Naming) view.TopLimit {
	return view.TopLimit{
		Requests: c.list(c.requests.Last(minute, q.Minutes).Top(q.N), v),
		Refused:  c.list(c.refused.Last(minute, q.Minutes).Top(q.N), v),
	}
}

// TopSends returns the keys with most requests that were not refused, until a minute, over the window of WithSends. The
// caller sets the names of the limit.
func (c *Counter) TopSends(minute int64, n int, v Naming) view.TopLimit {
	if c == nil || c.sends == nil {
		return view.TopLimit{}
	}
	most := c.sends.Last(minute/c.every, sendSlices).Top(n)
	list := c.list(most, v)
	for i, k := range most.Keys {
		if texts := k.Value.Texts(); len(texts) > len(c.shapes) {
			list.Keys[i].Country = texts[len(c.shapes)]
		}
	}
	return view.TopLimit{Requests: list}
}

func (c *Counter) list(h limiter.HeavyHitters[limiter.Key, Label], v Naming) view.TopList {
	list := view.TopList{Total: h.Total, Floor: h.Floor, Keys: make([]view.TopKey, len(h.Keys))}
	for i, k := range h.Keys {
		list.Keys[i] = view.TopKey{
			Masked: k.Value.Masked(v.Display, c.shapes), Hash: v.KeyHash(k.Key), ID: v.KeyID(k.Key),
			Count: k.Count, Error: k.Error,
		}
	}
	return list
}

// MergeTops merges the results of several nodes into n keys of each limit. The nodes should be
// queried for more than n keys, so that most of them know each of the first n keys. Keys are
// identified by their ids, which are equal on all nodes of a cluster. Keys whose count is uncertain are
// left out: those that may have fewer requests than twice the error. The limits with most refusals come
// first, then those with most requests.
func MergeTops(n int, all ...view.Top) view.Top {
	out := view.Top{Limits: []view.TopLimit{}}
	at := map[[2]string]int{}
	for _, t := range all {
		out.Minutes = max(out.Minutes, t.Minutes)
		for _, l := range t.Limits {
			name := [2]string{l.Route, l.Limit}
			i, known := at[name]
			if !known {
				i = len(out.Limits)
				at[name] = i
				empty := view.TopLimit{Route: l.Route, Limit: l.Limit, Key: l.Key, Mode: l.Mode}
				out.Limits = append(out.Limits, empty)
			}
			to := &out.Limits[i]
			to.Requests, to.Refused = listOf(heavy(to.Requests).Merge(heavy(l.Requests))), listOf(heavy(to.Refused).Merge(heavy(l.Refused)))
		}
	}
	for i := range out.Limits {
		l := &out.Limits[i]
		l.Requests, l.Refused = listOf(heavy(l.Requests).Certain().Top(n)), listOf(heavy(l.Refused).Certain().Top(n))
	}
	slices.SortStableFunc(out.Limits, func(a, b view.TopLimit) int {
		return cmp.Or(cmp.Compare(b.Refused.Total, a.Refused.Total), cmp.Compare(b.Requests.Total, a.Requests.Total))
	})
	return out
}

func heavy(t view.TopList) limiter.HeavyHitters[string, view.TopKey] {
	h := limiter.HeavyHitters[string, view.TopKey]{Total: t.Total, Floor: t.Floor}
	for _, k := range t.Keys {
		h.Keys = append(h.Keys, limiter.HeavyHitter[string, view.TopKey]{Key: k.ID, Count: k.Count, Error: k.Error, Value: k})
	}
	return h
}

func listOf(h limiter.HeavyHitters[string, view.TopKey]) view.TopList {
	t := view.TopList{Total: h.Total, Floor: h.Floor, Keys: make([]view.TopKey, len(h.Keys))}
	for i, k := range h.Keys {
		t.Keys[i] = k.Value
		t.Keys[i].Count, t.Keys[i].Error = k.Count, k.Error
	}
	return t
}
