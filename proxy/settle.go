package proxy

import (
	"context"
	"fmt"
	"slices"
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
	store   limiter.AdminStore
	claims  []limiter.Claim
	windows []int // as the exchange's
	permit  limiter.Permit
	hold    *lease          // nil unless some claims are concurrent
	once    []limiter.Claim // that it was the first of its kind; given back with all the rest

	released bool // what is concurrent was given back
}

func newTaking(store limiter.AdminStore, claims []limiter.Claim, windows []int, p limiter.Permit) taking {
	return taking{store: store, claims: claims, windows: windows, permit: p, hold: holds(store, claims, p)}
}

func (t taking) with(once []limiter.Claim) taking {
	t.once = once
	return t
}

// stopRenewing ends what is held, whatever came of the request.
func (x *exchange) stopRenewing() {
	for _, t := range x.takings {
		t.hold.end()
	}
}

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
	if x.forwarded {
		a.resetCooldowns(ctx, x)
	}
	if a.timeout > 0 && x.forwarded && x.owes() {
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
	if x.forwarded {
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
	for i := range x.takings {
		a.giveBack(ctx, x, &x.takings[i])
	}
}

// owes reports whether settling x takes a call of a store.
func (x *exchange) owes() bool {
	all := x.returns()
	for i := range x.takings {
		t := &x.takings[i]
		if slices.ContainsFunc(t.windows, func(w int) bool { return all || x.route.windows[w].of.uncounted(&x.result) }) || t.hasHeld() {
			return true
		}
	}
	return false
}

// giveBack gives back all claims of one taking, or those of limits that do not
// count the outcome. What was released before is left out.
func (a *admitter) giveBack(ctx context.Context, x *exchange, t *taking) {
	x.back = x.back[:0]
	all := x.returns()
	var last *limit
	for i, c := range t.claims {
		of := x.route.windows[t.windows[i]].of
		if concurrent(c) {
			if !t.released {
				x.back = append(x.back, c)
			}
			continue
		}
		if !all && !of.uncounted(&x.result) {
			continue
		}
		x.back = append(x.back, c)
		if of != last {
			x.returned = true
			a.metrics.refunds.WithLabelValues(x.route.name, of.name).Inc()
			last = of
		}
	}
	if all {
		x.back = append(x.back, t.once...)
	}
	a.refund(ctx, x, t)
}

// refund gives back x.back, which is of t.
func (a *admitter) refund(ctx context.Context, x *exchange, t *taking) {
	if len(x.back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	began := time.Now()
	err := t.store.Refund(ctx, x.back, t.permit)
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
	all := x.asked || x.route.refund.Status.Has(status)
	for i := range x.decision.Outcomes {
		c, of := x.claims[i], x.window(i).of
		if !all && (of.count == nil || of.count.Has(status)) || concurrent(c) || c.Limit.Algorithm == limiter.Distinct {
			continue
		}
		o := &x.decision.Outcomes[i]
		o.Remaining, o.Wait = min(o.Remaining+c.Cost, c.Limit.Most()), 0
	}
}

// returns reports whether the request gives back all that it took.
func (x *exchange) returns() bool {
	if x.result.Target == "" && x.route.pool != nil {
		return true // no target was asked
	}
	back := &x.route.refund
	return x.asked || back.Status.Has(x.result.Status) || back.kinds[x.result.Kind]
}

// uncounted reports whether the outcome is known and not one that stays counted.
// A target that could not be connected to has seen nothing: that is known.
func (l *limit) uncounted(r *upstream.Result) bool {
	switch {
	case l.count == nil:
		return false
	case r.Status != 0:
		return !l.count.Has(r.Status)
	}
	return r.Kind == upstream.Connect || r.Kind == upstream.ConnectTimeout
}

// A refund says after which outcomes the requests of a route give back what
// they took.
type refund struct {
	config.Refund
	kinds map[upstream.Kind]bool // Errors, as package upstream calls them
}

func newRefund(c config.Refund) refund {
	r := refund{Refund: c, kinds: map[upstream.Kind]bool{}}
	for _, e := range c.Errors {
		for _, kind := range kinds(e) {
			r.kinds[kind] = true
		}
	}
	return r
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
