package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A Replay takes logged requests through the stages of a configuration on a virtual
// clock: each at the time at which it came, by the counts of a memory store that keeps
// that time. What came of a request, which decides whether it is given back, is what the
// log says came of it, when it ended; nothing is forwarded. So the counts are those that
// a single Weir with this configuration would have had, as far as the log tells of what
// the configuration asks for: a limit or a list whose key it does not tell is left out of
// that request, and counted as unknown.
//
// A Replay is for one goroutine. Time never goes back: a request that is older than the
// one before is taken at the time of that one.
type Replay struct {
	proxy      *Proxy
	generation *generation
	routes     map[*route]*replayRoute // by the route that matched
	now        time.Time
	host       string
	events     events
	lines      map[replayPlace]*replayLine
	free       []*visit
	tally      *tallies
}

// ReplayOptions are what a Replay is given besides its configuration.
type ReplayOptions struct {
	// Host is that of requests whose log tells of none; localhost when empty.
	Host string
	// Top is how many of the keys that a limit refuses most are told of.
	Top int
	// MaxKeys and MaxBytes bound the room for counts, as those of limiter.MemoryOptions;
	// where they are 0, it is that of the store that the configuration names.
	MaxKeys  int
	MaxBytes int64
}

// NewReplay makes a Replay of c. Close ends it.
func NewReplay(c *config.Config, o ReplayOptions) (*Replay, error) {
	r := &Replay{routes: map[*route]*replayRoute{}, lines: map[replayPlace]*replayLine{}, host: o.Host}
	if r.host == "" {
		r.host = "localhost"
	}
	room := limiter.MemoryOptions{MaxKeys: o.MaxKeys, MaxBytes: o.MaxBytes, Clock: func() time.Time { return r.now }}
	p, err := offline(c, room, func(*generation) error { return nil })
	if err != nil {
		return nil, err
	}
	p.admitter.waiting = func(_ context.Context, q *admission) taker {
		if _, first := q.waitsAt(); first == nil {
			return p.admitter.take
		}
		return decided
	}
	r.proxy, r.generation = p, p.current.Load()
	r.tally = newTallies(r.generation, o.Top)
	for _, rt := range r.generation.routes {
		r.routes[rt] = newReplayRoute(rt)
	}
	return r, nil
}

// Close lets go of what r holds.
func (r *Replay) Close() { r.proxy.Close() }

// Request takes the next request through the stages. Its strings are not kept.
func (r *Replay) Request(q *LoggedRequest) {
	r.advance(q.At)
	v := r.take()
	v.fill(q, r.host)
	x := &v.x
	x.began, x.generation = r.now, r.generation
	v.took, v.status = q.Took, q.Status
	if v.err = r.enter(q, x, v); v.err != nil {
		r.leave(v)
		return
	}
	if place, first := x.waitsAt(); first != nil {
		r.stand(v, place, first)
		return
	}
	v.err = r.proxy.admitter.admit(context.Background(), &x.admission)
	r.leave(v)
}

// A visit is a request until it is counted.
type visit struct {
	*replayed
	took    time.Duration
	status  int
	route   *replayRoute      // nil if none matches
	unknown bitset            // limits and lists of the route that are left out
	err     error             // why a stage refused it
	labels  map[*limit]string // of its keys, made before it waited; nil otherwise
	taken   error             // what the store said, of one that stood in line
}

// enter takes the request as far as the stage that asks the store.
func (r *Replay) enter(q *LoggedRequest, x *exchange, v *visit) error {
	if err := r.proxy.route(r.generation, x); err != nil {
		return err
	}
	v.route = r.routes[x.route]
	x.route, v.unknown = v.route.known(q, x)
	return r.proxy.claim(context.Background(), r.generation, x)
}

// leave counts a request, and settles it when it has ended.
func (r *Replay) leave(v *visit) {
	x := &v.x
	r.tally.count(r.now, v)
	if v.err != nil {
		r.give(v)
		return
	}
	x.stopRenewing() // by the time of day, which means nothing here
	x.outcome.result = v.result()
	ends := len(x.route.resets) > 0 || x.owes(&x.outcome)
	if v.took > 0 && ends {
		r.renew(v, r.now.Add(v.took))
		r.events.add(r.now.Add(v.took), func() { r.settle(v) })
		return
	}
	if ends {
		r.settle(v)
		return
	}
	r.give(v)
}

// settle ends a request.
func (r *Replay) settle(v *visit) {
	ctx := context.Background()
	r.proxy.admitter.resetCooldowns(ctx, &v.x.admission, v.x.extracted.keys, v.x.outcome.result.Status)
	r.proxy.admitter.settle(ctx, &v.x.admission, &v.x.outcome)
	if v.x.settled.returned {
		r.tally.route(v.route).Returned++
	}
	r.give(v)
}

// renew keeps the concurrent permits of a request for as long as it is in
// progress.
func (r *Replay) renew(v *visit, until time.Time) {
	next := r.now.Add(renewInterval)
	if !next.Before(until) || !v.x.hasHeld() {
		return
	}
	r.events.add(next, func() {
		for _, t := range v.x.taken {
			if t.hasHeld() {
				_ = t.hold.store.Renew(context.Background(), t.hold.claims, t.hold.permit)
			}
		}
		r.renew(v, until)
	})
}

// result is what came of the request by the log. Of one that the upstream did not
// answer, as far as the log tells, nobody knows.
func (v *visit) result() upstream.Result {
	switch r := v.x.route; {
	case r.Redirect != nil:
		return upstream.Result{Status: r.Redirect.Status}
	case r.Respond != nil:
		return upstream.Result{Status: r.respond.Status}
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
	statusClientGone = 499 // as nginx and Weir log it
	statusTimeout    = 504
)

// advance moves the clock, and does what is due until then.
func (r *Replay) advance(to time.Time) {
	for {
		e, due := r.events.next(to)
		if !due {
			break
		}
		r.now = e.at
		e.do()
	}
	if to.After(r.now) {
		r.now = to
	}
}

// Finish lets all requests end that are in progress, and returns what came of all. r is
// not to be used any more but to be closed.
func (r *Replay) Finish() ReplayTally {
	for len(r.events.heap) > 0 {
		r.advance(r.events.heap[0].at)
	}
	out := r.tally.whole()
	if m, ok := r.proxy.admitter.store.(*limiter.Memory); ok {
		out.Keys, _ = m.Keys()
	}
	return out
}

// take is a visit that is free.
func (r *Replay) take() *visit {
	if n := len(r.free); n > 0 {
		v := r.free[n-1]
		r.free = r.free[:n-1]
		return v
	}
	return &visit{replayed: &replayed{x: *newExchange().(*exchange)}}
}

// give takes back a visit that nothing refers to any more.
func (r *Replay) give(v *visit) {
	v.x.reset()
	*v = visit{replayed: v.replayed}
	r.free = append(r.free, v)
}

// decided is the taker for a request that stood in line: the store has been asked.
func decided(context.Context, []limiter.Claim, *limiter.Decision) error { return nil }
