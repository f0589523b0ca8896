package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/upstream"
)

const (
	// settleWithin is the most time that giving back may take.
	settleWithin = time.Second
	// mostSettling is how many requests may be settled at a time after their answers.
	mostSettling = 10_000
)

// A taking is what one decision took, and of whom.
type taking struct {
	store  limiter.AdminStore
	asked  asks
	permit limiter.Permit
	hold   *lease          // nil unless some claims are concurrent
	once   []limiter.Claim // that it was the first of its kind; given back with all the rest

	released bool // what is concurrent was given back
}

func newTaking(store limiter.AdminStore, asked asks, p limiter.Permit) taking {
	return taking{store: store, asked: asked, permit: p, hold: holds(store, asked.claims, p)}
}

func (t taking) with(once []limiter.Claim) taking {
	t.once = once
	return t
}

// stopRenewing ends what is held, whatever came of the request.
func (x *exchange) stopRenewing() {
	for _, t := range x.admitted.takings {
		t.hold.end()
	}
}

// A settlement is what is given back of what a request took.
type settlement struct {
	back     []limiter.Claim // of one taking
	returned bool            // something was
}

func (s settlement) reset() settlement { return settlement{back: s.back[:0]} }

// finish ends a request whose answer has been written, but for what net/http still
// keeps of it until ServeHTTP returns. What has to be given back over a network is
// given back after that, so that no client waits for it; then the exchange ends later
// than its handler. When very many do, a request waits after all. A cooldown that the
// outcome ends is ended before the answer is: what it tells the client to do next passes.
func (p *Proxy) finish(ctx context.Context, x *exchange) {
	x.took = time.Since(x.began)
	x.noteAgent()
	p.lasting.observer.observe(x)
	a := p.admitter
	if x.outcome.known {
		a.resetCooldowns(ctx, x)
	}
	if a.timeout > 0 && x.outcome.known && x.owes() {
		if a.settling.Add(1) <= mostSettling {
			x.keep()
			go func() {
				defer a.settling.Add(-1)
				p.end(context.Background(), x) // that of the request ends with its handler
			}()
			return
		}
		a.settling.Add(-1)
	}
	p.end(ctx, x)
}

// end settles what x took, and writes it down. Nobody may use x afterwards. A request
// that broke off in the middle, of which nobody knows what came, stays counted.
func (p *Proxy) end(ctx context.Context, x *exchange) {
	if x.outcome.known {
		p.admitter.settle(ctx, x)
	}
	x.stopRenewing()
	p.endTrace(x)
	p.recorder.leave(x)
	x.generation.leave()
	x.reset()
	p.exchanges.Put(x)
}

// settle closes the account of a request that was admitted. What it took stays
// taken unless it never left this process, or its route or a limit wants this
// outcome not to count: then exactly that is given back, once. Concurrent
// permits are given back in any case, for their request is over. An outcome that
// nobody knows counts, since the upstream may have done what was asked. The
// client may have left by then, so its context does not bind. Limits in shadow
// mode are settled as if they were enforced.
func (a *admitter) settle(ctx context.Context, x *exchange) {
	for i := range x.admitted.takings {
		a.giveBack(ctx, x, &x.admitted.takings[i])
	}
}

// owes reports whether settling x takes a call of a store.
func (x *exchange) owes() bool {
	all := x.returns()
	for i := range x.admitted.takings {
		t := &x.admitted.takings[i]
		if t.asked.has(func(l *limit) bool { return all || l.uncounted(&x.outcome.result) }) || t.hasHeld() {
			return true
		}
	}
	return false
}

// giveBack gives back all claims of one taking, or those of limits that do not
// count the outcome. What was released before is left out.
func (a *admitter) giveBack(ctx context.Context, x *exchange, t *taking) {
	x.settled.back = x.settled.back[:0]
	all := x.returns()
	var last *limit
	for i, c := range t.asked.claims {
		of := t.asked.windows[i].of
		if concurrent(c) {
			if !t.released {
				x.settled.back = append(x.settled.back, c)
			}
			continue
		}
		if !all && !of.uncounted(&x.outcome.result) {
			continue
		}
		x.settled.back = append(x.settled.back, c)
		if of != last {
			x.settled.returned = true
			a.metrics.refunds.WithLabelValues(x.route.Name, of.Name).Inc()
			last = of
		}
	}
	if all {
		x.settled.back = append(x.settled.back, t.once...)
	}
	a.refund(ctx, x, t)
}

// refund gives back x.back, which is of t.
func (a *admitter) refund(ctx context.Context, x *exchange, t *taking) {
	if len(x.settled.back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	began := time.Now()
	err := t.store.Refund(ctx, x.settled.back, t.permit)
	a.metrics.asked("refund", time.Since(began), err)
	if err != nil {
		x.fail(fmt.Errorf("give back: %w", err))
	}
}

// restore has the decision say what is left once the permits are back that this
// status gives back: the client is told before they are. A value of a distinct limit
// may have stood before, and what is held stays held until the answer's end, so of
// these the client hears what is so now. A failure that comes after the header, one of
// refund_on's cut for example, cannot be told any more.
func (x *exchange) restore(status int) {
	all := x.outcome.refund || x.route.RefundOn.Status.Has(status)
	for i := range x.decision.Outcomes {
		c, of := x.asks.claims[i], x.asks.windows[i].of
		if !all && (of.Count == nil || of.Count.Has(status)) || concurrent(c) || c.Limit.Algorithm == limiter.Distinct {
			continue
		}
		o := &x.decision.Outcomes[i]
		o.Remaining, o.Wait = min(o.Remaining+c.Cost, c.Limit.Most()), 0
	}
}

// returns reports whether the request gives back all that it took.
func (x *exchange) returns() bool {
	if x.outcome.result.Target == "" && x.route.pool != nil {
		return true // no target was asked
	}
	return x.outcome.refund || x.route.RefundOn.Status.Has(x.outcome.result.Status) || x.route.refunds[x.outcome.result.Kind]
}

// uncounted reports whether the outcome is known and not one that stays counted.
// A target that could not be connected to has seen nothing: that is known.
func (l *limit) uncounted(r *upstream.Result) bool {
	switch {
	case l.Count == nil:
		return false
	case r.Status != 0:
		return !l.Count.Has(r.Status)
	}
	return r.Kind == upstream.Connect || r.Kind == upstream.ConnectTimeout
}

// refunds are the errors after which the requests of a route give back what they took.
func refunds(c config.Refund) map[upstream.Kind]bool {
	all := map[upstream.Kind]bool{}
	for _, e := range c.Errors {
		for _, kind := range kinds(e) {
			all[kind] = true
		}
	}
	return all
}

// kinds are the ways for a forwarded request to end that an operator calls e.
func kinds(e config.Fault) []upstream.Kind {
	switch e {
	case config.FaultTimeout:
		return []upstream.Kind{upstream.Timeout, upstream.ConnectTimeout}
	case config.FaultConnect:
		return []upstream.Kind{upstream.Connect, upstream.ConnectTimeout}
	case config.FaultReset:
		return []upstream.Kind{upstream.Reset}
	case config.FaultCut:
		return []upstream.Kind{upstream.BodyCut}
	case config.FaultBadResponse:
		return []upstream.Kind{upstream.BadResponse}
	}
	return nil
}
