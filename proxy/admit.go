package proxy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

var (
	// errRefused reports that a limit refused; the admission has the decision.
	errRefused = errors.New("refused by a limit")
	// errUndecided reports that the store could not answer and that a limit of
	// the route lets nobody pass then.
	errUndecided = errors.New("limits cannot be decided")
)

// An admitter asks the limits whether a request may pass. It outlives
// generations.
type admitter struct {
	store    limiter.AdminStore
	timeout  time.Duration // the most a decision may wait; 0 for a store that never waits
	shared   bool          // the configuration names a store that costs a call over the network
	fallback *fallback
	denier   localDenier // nil: the store knows nothing by itself
	// announcer tells other nodes of changes; nil: there are none.
	announcer announcer
	line      *limiter.WaitQueue                               // at the store
	waiting   func(client context.Context, q *admission) taker // how a request waits for a permit: inLine
	metrics   *metrics
	nearby    *nearby

	settling atomic.Int64 // requests that are settled after their responses
}

func newAdmitter(o Options, m *metrics) *admitter {
	a := &admitter{store: o.Store, fallback: newFallback(o.Store, o.Nodes), metrics: m, nearby: newNearby()}
	a.denier, _ = o.Store.(localDenier)
	a.announcer, _ = o.Store.(announcer)
	if a.fallback.store != nil {
		a.store = mirrored{o.Store, a.fallback}
	}
	if a.shared = o.Config.Store == config.StoreRedis; a.shared {
		a.timeout = o.Config.Redis.Timeout
	}
	a.line = limiter.NewWaitQueue(o.Store, cmp.Or(a.timeout, settleTimeout)) // what it gives back was never noted
	a.waiting = a.inLine
	return a
}

// admit asks for all that q asks in one step: errRefused when a limit refused,
// errUndecided when the store could not tell and a limit says deny. A client
// that leaves meanwhile is counted anyway: what was asked for was asked for.
// All that it asks of the store takes no longer together than one decision may.
// A request that may wait for a permit is another matter: see wait.
func (a *admitter) admit(client context.Context, q *admission) error {
	ctx, cancel := a.boundAll(client, q)
	defer func() { cancel() }()
	if len(q.claims.claims) == 0 {
		a.evaluateShadow(ctx, q)
		return nil
	}
	store, err := a.store, errStoreUnreachable
	decider := a.fallback.decider(q)
	if decider != decideByShare {
		take := taker(a.take)
		switch {
		case decider == decideByBoth:
			take = a.fallback.within(q, take)
		case q.route.waits:
			take = a.waiting(client, q)
		}
		err = a.takeOnce(ctx, q, take)
	}
	if q.repeated {
		return nil
	}
	if q.waited { // what is asked from now on has its own time
		cancel()
		ctx, cancel = a.bound(client)
	}
	if errors.Is(err, limiter.ErrQueueFull) {
		err = nil // the decision is a refusal
	}
	if err != nil {
		if !errors.Is(err, limiter.ErrUnavailable) {
			return err
		}
		q.err = err
		if err := a.fallback.decide(q, a.metrics); err != nil {
			return err
		}
		store, q.repeat.first = reporting{a.fallback.local, a.fallback}, nil
	} else {
		if decider != decideByBoth { // else it is known there already
			a.fallback.note(q)
		}
		a.nearby.note(q)
	}
	if q.bothSecrets {
		q.mergePrevious()
	}
	a.metrics.decided(q.route, q.claims, &q.decision)
	q.decided = true
	if !q.decision.Allowed {
		return a.refuse(ctx, q, store)
	}
	q.taken = append(q.taken, newTakenPermit(store, q.claims, q.decision.Permit).with(q.repeat.first))
	if err == nil { // a store that is away is not asked again for the same request
		a.evaluateShadow(ctx, q)
	}
	return nil
}

// refuse does what follows a refusal of by.
func (a *admitter) refuse(ctx context.Context, q *admission, by limiter.AdminStore) error {
	a.penalize(ctx, q, by)
	q.shortenRetry()
	return errRefused
}

// bound is the time that one decision may take, whether or not the client stays.
func (a *admitter) bound(client context.Context) (context.Context, context.CancelFunc) {
	if a.timeout == 0 {
		return client, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(client), a.timeout)
}

// boundAll is bound for all that admit asks for q. What is one call of the store needs
// no timer of its own: none of its calls takes longer than a decision may.
func (a *admitter) boundAll(client context.Context, q *admission) (context.Context, context.CancelFunc) {
	if a.timeout > 0 && !q.route.waits && len(q.repeat.first)+len(q.shadows.claims) == 0 && !q.penalized() {
		return context.WithoutCancel(client), func() {}
	}
	return a.bound(client)
}

// penalized reports whether a refusal of q may have to be counted.
func (q *admission) penalized() bool {
	return q.claims.has(func(l *limit) bool { return l.Penalty != nil })
}

// shortenRetry lets a client that was refused for what it has in progress come back
// soon: any of that may end at any moment, long before the lease that the store goes
// by.
func (q *admission) shortenRetry() {
	q.decision.Wait = 0
	for i := range q.decision.Outcomes {
		o := &q.decision.Outcomes[i]
		if concurrent(q.claims.claims[i]) && !o.Banned {
			o.Wait = min(o.Wait, time.Second)
		}
		if !o.Allowed {
			q.decision.Wait = max(q.decision.Wait, o.Wait)
		}
	}
}

// A taker asks for claims, as limiter.Store.Take does.
type taker func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error

// take asks the store.
func (a *admitter) take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	began := time.Now()
	err := a.store.Take(ctx, claims, d)
	if a.timeout > 0 {
		a.metrics.asked("take", time.Since(began), err)
	}
	return err
}

// evaluateShadow asks each limit in shadow mode what it would have said of a request that
// passes. Each is asked alone, since what one refuses the others still count. They
// have what the decision left of its time.
func (a *admitter) evaluateShadow(ctx context.Context, q *admission) {
	if len(q.shadows.claims)+len(q.shadowErrors) > 0 {
		a.evaluateShadows(ctx, q)
	}
}

func (a *admitter) evaluateShadows(ctx context.Context, q *admission) {
	for _, l := range q.shadowErrors {
		a.metrics.decision(q.route, l, shadowRefused).Inc()
	}
	var d limiter.Decision
	for from, to := 0, 0; from < len(q.shadows.claims); from = to {
		var of *limit
		of, to = q.shadows.limit(from)
		asked := q.shadows.part(from, to)
		if err := a.take(ctx, asked.claims, &d); err != nil {
			a.metrics.unasked(q, of)
			continue
		}
		a.metrics.decided(q.route, asked, &d)
		q.shadow(asked, &d)
		q.taken = append(q.taken, newTakenPermit(a.store, asked, d.Permit))
	}
}

// shadow notes what d, the decision about what was asked of a limit in shadow mode, would
// have refused. A key that is counted under two secrets is noted once.
func (a *admission) shadow(asked claimSet, d *limiter.Decision) {
	for i, o := range d.Outcomes {
		w := asked.windows[i]
		if !o.Allowed && !slices.ContainsFunc(a.shadowed, func(s refusal) bool { return s.window == w }) {
			a.shadowed = append(a.shadowed, refusal{w, asked.claims[i].Key, o.Banned, o.Wait})
		}
	}
}
