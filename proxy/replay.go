package proxy

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A Replay runs logged requests through the stages of a configuration on a virtual clock: each at
// the time of the log, with the counts of a memory store on that clock. The outcome of a request,
// which decides about refunds, and its end are taken from the log; nothing is forwarded. The counts
// are those that a single Weir with this configuration would have had, as far as the log has the
// data that the configuration needs. A limit or list whose key is not in the log is skipped for
// that request and counted as unknown.
//
// A Replay is not safe for concurrent use. Time never goes back: a request older than the previous
// one is evaluated at the time of the previous one.
type Replay struct {
	proxy      *Proxy
	generation *generation
	routes     map[*route]*replayRoute // by the route that matched
	now        time.Time
	host       string
	events     events
	queues     map[queueID]*replayQueue
	free       []*visit
	tally      *tallies
}

// ReplayOptions configure a Replay.
type ReplayOptions struct {
	// Host is the host of requests whose log has none; localhost if empty.
	Host string
	// Top is the number of most refused keys that are reported for each limit.
	Top int
	// MaxKeys and MaxBytes limit the memory for counts, as in limiter.MemoryOptions. If they are 0,
	// the limits of the configured store apply.
	MaxKeys  int
	MaxBytes int64
}

// NewReplay returns a Replay of c. The caller must close it.
func NewReplay(c *config.Config, o ReplayOptions) (*Replay, error) {
	r := &Replay{routes: map[*route]*replayRoute{}, queues: map[queueID]*replayQueue{}, host: o.Host}
	if r.host == "" {
		r.host = "localhost"
	}
	room := limiter.MemoryOptions{MaxKeys: o.MaxKeys, MaxBytes: o.MaxBytes, Clock: func() time.Time { return r.now }}
	p, err := offline(c, room, func(*generation) error { return nil })
	if err != nil {
		return nil, err
	}
	p.admitter.waitTaker = func(_ context.Context, q *admission) taker {
		if _, first := q.waitQueueOf(); first == nil {
			return p.admitter.take
		}
		return alreadyDecided
	}
	r.proxy, r.generation = p, p.current.Load()
	r.tally = newTallies(r.generation, o.Top)
	for _, rt := range r.generation.routes {
		for _, l := range rt.limits {
			l.sends = nil // nobody asks for them
		}
		r.routes[rt] = newReplayRoute(rt, &c.Privacy)
	}
	return r, nil
}

// Close releases the resources of r.
func (r *Replay) Close() { r.proxy.Close() }

// Request runs the next request through the stages. It does not keep q's strings.
func (r *Replay) Request(q *LoggedRequest) {
	r.advance(q.At)
	v := r.newVisit()
	v.fill(q, r.host)
	x := &v.x
	x.began, x.generation, x.in.scheme = r.now, r.generation, cmp.Or(x.in.scheme, r.generation.usualScheme())
	v.duration, v.status, v.own = q.Took, q.Status, q.Own
	if v.err = r.runStages(q, x, v); v.err != nil {
		r.finish(v)
		return
	}
	if place, first := x.waitQueueOf(); first != nil && !x.isRepeat {
		r.enqueue(v, place, first)
		return
	}
	switch {
	case x.isRepeat:
	case q.CachedRefusal != "" && r.refusesAgain(x, q.CachedRefusal):
		v.err = r.proxy.admitter.refuse(context.Background(), &x.admission, r.proxy.admitter.store)
	default:
		v.err = r.proxy.admitter.admit(context.Background(), &x.admission)
	}
	r.finish(v)
}

// A visit is a request until it has been counted.
type visit struct {
	*replayed
	duration  time.Duration
	status    int
	route     *replayRoute      // nil if none matches
	skipped   bitset            // limits and lists of the route that are skipped
	err       error             // why a stage refused the request
	labels    map[*limit]string // labels of its keys, made before it waits; nil if it does not wait
	storeErr  error             // the error of the store, for a request that has waited
	refusedBy *limit            // the limit with an unknown key that refused the request in the log
	own       bool              // the line is of Weir's own log, and tells which list decided
}

// runStages runs the stages before admit.
func (r *Replay) runStages(q *LoggedRequest, x *exchange, v *visit) error {
	if err := r.resolveRoute(q, x); err != nil {
		return err
	}
	v.route = r.routes[x.route]
	x.route, v.skipped = v.route.withKnownKeys(q, x)
	if decided, err := v.repeatLog(q); decided {
		return err
	}
	return r.proxy.resolveClaims(context.Background(), r.generation, x)
}

// resolveRoute determines the route of a request. Of a descriptor the log has no entries, but its route.
func (r *Replay) resolveRoute(q *LoggedRequest, x *exchange) error {
	if q.Listener != EnvoyListener {
		return r.proxy.resolveRoute(r.generation, x)
	}
	for _, of := range r.generation.routes {
		if of.Match.Domain != "" && of.Name == q.Route {
			x.route = of
			return nil
		}
	}
	return routing.ErrNone
}

// finish counts a request, and settles it at the time of its end.
func (r *Replay) finish(v *visit) {
	x := &v.x
	r.tally.count(r.now, v)
	if v.err != nil {
		r.freeVisit(v)
		return
	}
	x.stopRenewing() // they use the real clock
	x.outcome.result = v.result()
	ends := len(x.route.cooldownResets)+len(x.route.permitReturns) > 0 || x.needsRefund(&x.outcome)
	if v.duration > 0 && ends {
		r.renew(v, r.now.Add(v.duration))
		r.events.add(r.now.Add(v.duration), func() { r.settle(v) })
		return
	}
	if ends {
		r.settle(v)
		return
	}
	r.freeVisit(v)
}

// settle settles a request at its end.
func (r *Replay) settle(v *visit) {
	ctx := context.Background()
	r.proxy.admitter.settleOthers(&v.x.admission, v.x.extracted.keys, v.x.outcome.result.Status)
	r.proxy.admitter.settle(ctx, &v.x.admission, &v.x.outcome)
	if v.x.settled.refunded {
		r.tally.route(v.route).Returned++
	}
	r.freeVisit(v)
}

// renew schedules the renewals of the concurrent permits of a request while it is in progress.
func (r *Replay) renew(v *visit, until time.Time) {
	next := r.now.Add(renewInterval)
	if !next.Before(until) || !v.x.hasConcurrent() {
		return
	}
	r.events.add(next, func() {
		for _, t := range v.x.takenPermits {
			if t.hasConcurrent() {
				_ = t.lease.store.Renew(context.Background(), t.lease.claims, t.lease.permit)
			}
		}
		r.renew(v, until)
	})
}

// result returns the outcome of the request according to the log. If the log has no status of the
// upstream, the outcome is unknown.
func (v *visit) result() upstream.Result {
	switch r := v.x.route; {
	case r.Redirect != nil:
		return upstream.Result{Status: r.Redirect.Status}
	case r.Respond != nil:
		return upstream.Result{Status: r.fixedResponse.Status}
	}
	result := upstream.Result{Target: "log", Status: v.status}
	switch v.status {
	case statusClientGone:
		result.Status, result.Kind = 0, upstream.ClientGone
	case statusTimeout:
		result.Kind = upstream.Timeout
	}
	return result
}

const (
	statusClientGone = 499 // as logged by nginx and Weir
	statusTimeout    = 504
)

// advance sets the clock, and runs the events that are due until then.
func (r *Replay) advance(to time.Time) {
	for e := r.events.next(to); e != nil; e = r.events.next(to) {
		r.now = e.at
		e.do()
	}
	if to.After(r.now) {
		r.now = to
	}
}

// Finish runs the ends of all requests in progress and returns the counts. Afterwards r must only
// be closed.
func (r *Replay) Finish() ReplayTally {
	for len(r.events.heap) > 0 {
		r.advance(r.events.heap[0].at)
	}
	out := r.tally.result()
	if m, ok := r.proxy.admitter.store.(*limiter.Memory); ok {
		out.Keys, _ = m.Keys()
	}
	return out
}

// newVisit returns a visit, from the free list if possible.
func (r *Replay) newVisit() *visit {
	if n := len(r.free); n > 0 {
		v := r.free[n-1]
		r.free = r.free[:n-1]
		return v
	}
	return &visit{replayed: &replayed{x: *newExchange().(*exchange)}}
}

// freeVisit returns a visit to the free list. It must not be used afterwards.
func (r *Replay) freeVisit(v *visit) {
	v.x.reset()
	*v = visit{replayed: v.replayed}
	r.free = append(r.free, v)
}

// alreadyDecided is the taker of a request that has waited: its decision is made already.
func alreadyDecided(context.Context, []limiter.Claim, *limiter.Decision) error { return nil }
