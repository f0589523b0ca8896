// Package decisions records what operators may query later: the decisions about recent requests, and the
// keys of each limit with most requests and most refusals. It has no influence on decisions, and knows
// no request but by what is recorded of it. All functions are safe for concurrent use.
package decisions

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/stripe"
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
	is := func(k limiter.Key) bool { return v.KeyHash(k) == hash }
	k, found := o.keyOf(is)
	for minute := o.Minute(time.Now()); !found && len(counters) > 0; counters = counters[1:] {
		k, found = counters[0].keyOf(minute, is)
	}
	return k.key, found
}

// LabelOf returns the texts of a key, if a recent request had it or c, which may be nil, has counted it.
func (o *Observer) LabelOf(k limiter.Key, c *Counter) (Label, bool) {
	is := func(other limiter.Key) bool { return other == k }
	one, found := c.keyOf(o.Minute(time.Now()), is)
	if !found {
		one, found = o.keyOf(is)
	}
	return one.label, found
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
	return view.TopList{Total: h.Total, Floor: h.Floor, Keys: view.Each(h.Keys, func(k limiter.HeavyHitter[limiter.Key, Label]) view.TopKey {
		return view.TopKey{Masked: k.Value.Masked(v.Display, c.shapes), Hash: v.KeyHash(k.Key), ID: v.KeyID(k.Key), Count: k.Count, Error: k.Error}
	})}
}

// MergeTops merges the results of several nodes into n keys of each limit. The nodes should be
// queried for more than n keys, so that most of them know each of the first n keys. Keys are
// identified by their ids, which are equal on all nodes of a cluster. Keys whose count is uncertain are
// left out: those that may have fewer requests than twice the error. The limits with most refusals come
// first, then those with most requests.
func MergeTops(n int, all ...view.Top) view.Top {
	out := view.Top{Limits: []view.TopLimit{}}
	for _, t := range all {
		out.Minutes = max(out.Minutes, t.Minutes)
		for _, l := range t.Limits {
			i := slices.IndexFunc(out.Limits, func(o view.TopLimit) bool { return o.Route == l.Route && o.Limit == l.Limit })
			if i < 0 {
				i, out.Limits = len(out.Limits), append(out.Limits, view.TopLimit{Route: l.Route, Limit: l.Limit, Key: l.Key, Mode: l.Mode})
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
	return limiter.HeavyHitters[string, view.TopKey]{Total: t.Total, Floor: t.Floor, Keys: view.Each(t.Keys, func(k view.TopKey) limiter.HeavyHitter[string, view.TopKey] {
		return limiter.HeavyHitter[string, view.TopKey]{Key: k.ID, Count: k.Count, Error: k.Error, Value: k}
	})}
}

func listOf(h limiter.HeavyHitters[string, view.TopKey]) view.TopList {
	return view.TopList{Total: h.Total, Floor: h.Floor, Keys: view.Each(h.Keys, func(k limiter.HeavyHitter[string, view.TopKey]) view.TopKey {
		k.Value.Count, k.Value.Error = k.Count, k.Error
		return k.Value
	})}
}

const (
	// numShards is the number of parts of each ring, each with its own lock.
	numShards = 64
	// refusedRecent is the number of refused requests, and of those that would have been in shadow mode, in
	// a part of the ring of all of them: in all the last 6144, and of each second the first
	// refusedEverySecond. When a request leaves it, it goes to the part for its key and client of
	// another ring, with earlierRecent of them, and so do those that are more in a second: a flood by
	// one client does not overwrite the requests of all others, and uses little of the processor's
	// cache. allowedRecent is the number of the others in a part: in all 4096. Full rings use about
	// 7 MB; a part uses no memory before its first request.
	refusedRecent = 96
	earlierRecent = 24
	// refusedEverySecond bounds how many refusals enter the ring of all of them.
	refusedEverySecond = 1000
	// floodedEvery is the minimum interval between further refusals stored in a part.
	floodedEvery  = time.Millisecond
	allowedRecent = 64

	// AllowedEvery is the minimum interval between allowed requests stored in a part. Above about
	// 3000 requests per second only a sample is stored.
	AllowedEvery = 20 * time.Millisecond

	maxKeys    = 4
	maxID      = 48 // bytes of a request id; longer ones are truncated
	maxMethod  = 12
	maxMessage = 200
)

// A ring stores the decisions about recent requests, so that an operator can find out why a certain
// request was refused. Storing a request copies a fixed size of about 600 bytes under a lock with little
// contention, without allocating; twice for a refusal that leaves the ring of all. The data is formatted when
// it is read.
type ring struct {
	seed                      maphash.Seed
	next                      atomic.Uint64 // refusals in the ring of all so far; they are spread over the parts in turn
	second, inSecond          atomic.Int64  // the current second, since 1970, and its refusals
	refused, earlier, allowed [numShards]part
}

// A part is a part of a ring. The oldest record is overwritten. No two are in the same cache lines.
type part struct {
	last atomic.Int64 // of samples: when the last one was stored, in nanoseconds since 1970

	mu      sync.Mutex // guards what follows; that of a refused part is taken before that of an earlier one
	records []record
	next    int
	_       [stripe.LineSize - 48]byte
}

// A record is one request.
type record struct {
	Facts
	began     int64  // nanoseconds since 1970; 0 if the record is empty
	idHash    uint64 // hash of a request id that is truncated; otherwise 0
	err       string
	status    uint16
	shard     uint8 // of its key and client
	numKeys   uint8
	methodLen uint8
	idLen     uint8
	method    [maxMethod]byte
	id        [maxID]byte
	claims    [maxClaims]claim
	keys      [maxKeys]labelledKey
}

// A claim is the decision of one rate.
type claim struct {
	window    uint16 // index into the windows of the route
	key       uint8  // index into the keys of the record; maxKeys if the key did not fit
	flags     ClaimFlags
	remaining int32
	wait      float32 // milliseconds; a wait may be longer than a uint32 has
}

// A labelledKey is one key of a request.
type labelledKey struct {
	key   limiter.Key
	label Label
}

// A Route describes a route in records. It outlives the generation and does not reference it.
type Route struct {
	Name    string
	Windows []Window
}

// A Window describes a rate of a limit: what all decisions of it have, and how keys and permits are shown.
type Window struct {
	view.DecisionLimit
	AmountText func(n int64) string // formats permits in their unit; nil if they have none
	Shapes     []key.Shape          // of the key
}

// all calls yield for the records of all rings, under the lock of their part: first those in the parts from which
// records are moved, so that a record that is moved meanwhile is found once or twice.
func (r *ring) all(yield func(*record) bool) {
	for _, parts := range [...]*[numShards]part{&r.refused, &r.earlier, &r.allowed} {
		for i := range parts {
			if !parts[i].all(yield) {
				return
			}
		}
	}
}

// all calls yield for the records of p until it returns false, which all returns then.
func (p *part) all(yield func(*record) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.records {
		if !yield(&p.records[i]) {
			return false
		}
	}
	return true
}

// keyOf returns the first key of a recent request for which is returns true.
func (r *ring) keyOf(is func(limiter.Key) bool) (labelledKey, bool) {
	for rec := range r.all {
		for _, own := range rec.keys[:rec.numKeys] {
			if is(own.key) {
				return own, true
			}
		}
	}
	return labelledKey{}, false
}

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

// Counter returns the counter of a limit of a new generation, whose name is ROUTE.LIMIT. A limit keeps the counter it
// had before if it still counts by the same key. A counter uses no memory before the first request.
func (o *Observer) Counter(name string, by *key.Spec) *Counter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if had := o.counters[name]; had != nil && had.key == by.Name && slices.Equal(had.shapes, by.Shapes()) {
		return had
	}
	return &Counter{
		name: name, key: by.Name, shapes: by.Shapes(), stripes: o.stripes,
		requests: limiter.NewTopKeys[Label](countedKeys(MaxCounters), TopSlices, o.stripes),
		refused:  limiter.NewTopKeys[Label](countedKeys(MaxCounters), TopSlices, o.stripes),
	}
}

// KeepOnly keeps these counters, of the generation that serves, and forgets all others. The memory is divided among them;
// a minute that has begun keeps its share.
func (o *Observer) KeepOnly(these []*Counter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.counters)
	keys := countedKeys(len(these))
	for _, one := range these {
		o.counters[one.name] = one
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

// keyOf returns the first key that was counted in the last minutes for which is returns true.
func (c *Counter) keyOf(minute int64, is func(limiter.Key) bool) (labelledKey, bool) {
	if c == nil {
		return labelledKey{}, false
	}
	for _, k := range slices.Concat(c.refused.Last(minute, TopSlices).Keys, c.requests.Last(minute, TopSlices).Keys) {
		if is(k.Key) {
			return labelledKey{k.Key, k.Value}, true
		}
	}
	return labelledKey{}, false
}
