package decisions

import (
	"cmp"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A TopQuery selects limits. Empty fields match all.
type TopQuery struct {
	Route, Limit string
	Minutes      int // the last minutes including the current one; 0 for all
	N            int // number of keys of each limit; 0 for 20
}

// A Top lists the keys with most requests and with most refusals, by limit.
type Top struct {
	Minutes int        `json:"minutes"`
	Limits  []TopLimit `json:"limits"`
}

// A TopLimit lists the keys of one limit.
type TopLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Key   string `json:"key"`  // the name of the key
	Mode  string `json:"mode"` // in shadow mode, refused requests only would have been refused
	// Requests are the keys with most requests, Refused those with most refusals.
	Requests TopList `json:"requests"`
	Refused  TopList `json:"refused"`
}

// A TopList is a list of keys in descending order of their counts.
type TopList struct {
	Total int64 `json:"total"` // count of all keys
	// Floor is the maximum count of a key that is not listed.
	Floor int64      `json:"floor"`
	Keys  []TopEntry `json:"keys"`
}

// A TopEntry is a key. Its true count is between Count-Error and Count.
type TopEntry struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"` // the hash of the key in the log
	ID     string `json:"id"`   // the key id, see the field value of a key query
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
	// Country is the country of a range of phone numbers, if its Label has it.
	Country string `json:"country,omitempty"`
}

// maxTopKeys is the maximum number of keys of a limit that are returned.
const maxTopKeys = 1000

// Complete returns q with its defaults.
func (q TopQuery) Complete() TopQuery {
	if q.Minutes <= 0 || q.Minutes > TopSlices {
		q.Minutes = TopSlices
	}
	if q.N <= 0 {
		q.N = 20
	}
	q.N = min(q.N, maxTopKeys)
	return q
}

// Top returns the keys with most requests and with most refusals of a limit until a minute, as Observer.Minute
// returns. The caller sets the names of the limit.
func (c *Counter) Top(minute int64, q TopQuery, v View) TopLimit {
	return TopLimit{
		Requests: c.list(c.requests.Last(minute, q.Minutes).Top(q.N), v),
		Refused:  c.list(c.refused.Last(minute, q.Minutes).Top(q.N), v),
	}
}

// TopSends returns the keys with most requests that were not refused, until a minute, over the window of WithSends. The
// caller sets the names of the limit.
func (c *Counter) TopSends(minute int64, n int, v View) TopLimit {
	if c == nil || c.sends == nil {
		return TopLimit{}
	}
	return TopLimit{Requests: c.list(c.sends.Last(minute/c.every, sendSlices).Top(n), v)}
}

func (c *Counter) list(h limiter.HeavyHitters[limiter.Key, Label], v View) TopList {
	list := TopList{Total: h.Total, Floor: h.Floor, Keys: make([]TopEntry, len(h.Keys))}
	for i, k := range h.Keys {
		list.Keys[i] = TopEntry{
			Masked: k.Value.Masked(v.Display, c.shapes), Hash: v.KeyHash(k.Key), ID: v.KeyID(k.Key),
			Count: k.Count, Error: k.Error,
		}
		if texts := k.Value.Texts(); len(texts) > len(c.shapes) {
			list.Keys[i].Country = texts[len(c.shapes)]
		}
	}
	return list
}

// MergeTops merges the results of several nodes into n keys of each limit. The nodes should be
// queried for more than n keys, so that most of them know each of the first n keys. Keys are
// identified by their ids, which are equal on all nodes of a cluster. Keys whose count is uncertain are
// left out: those that may have fewer requests than twice the error. The limits with most refusals come
// first, then those with most requests.
func MergeTops(n int, all ...Top) Top {
	out := Top{Limits: []TopLimit{}}
	at := map[[2]string]int{}
	for _, t := range all {
		out.Minutes = max(out.Minutes, t.Minutes)
		for _, l := range t.Limits {
			name := [2]string{l.Route, l.Limit}
			i, known := at[name]
			if !known {
				i = len(out.Limits)
				at[name] = i
				empty := TopLimit{Route: l.Route, Limit: l.Limit, Key: l.Key, Mode: l.Mode}
				out.Limits = append(out.Limits, empty)
			}
			to := &out.Limits[i]
			to.Requests, to.Refused = to.Requests.merge(l.Requests), to.Refused.merge(l.Refused)
		}
	}
	for i := range out.Limits {
		l := &out.Limits[i]
		l.Requests, l.Refused = listOf(l.Requests.heavy().Certain().Top(n)), listOf(l.Refused.heavy().Certain().Top(n))
	}
	slices.SortStableFunc(out.Limits, func(a, b TopLimit) int {
		return cmp.Or(cmp.Compare(b.Refused.Total, a.Refused.Total), cmp.Compare(b.Requests.Total, a.Requests.Total))
	})
	return out
}

func (t TopList) merge(other TopList) TopList { return listOf(t.heavy().Merge(other.heavy())) }

func (t TopList) heavy() limiter.HeavyHitters[string, TopEntry] {
	h := limiter.HeavyHitters[string, TopEntry]{Total: t.Total, Floor: t.Floor}
	for _, k := range t.Keys {
		h.Keys = append(h.Keys, limiter.HeavyHitter[string, TopEntry]{Key: k.ID, Count: k.Count, Error: k.Error, Value: k})
	}
	return h
}

func listOf(h limiter.HeavyHitters[string, TopEntry]) TopList {
	t := TopList{Total: h.Total, Floor: h.Floor, Keys: make([]TopEntry, len(h.Keys))}
	for i, k := range h.Keys {
		t.Keys[i] = k.Value
		t.Keys[i].Count, t.Keys[i].Error = k.Count, k.Error
	}
	return t
}
