package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// settleWithin is the most time that giving back may take.
const settleWithin = time.Second

// A taking is what one decision took, and of whom.
type taking struct {
	store   limiter.Keeper
	claims  []limiter.Claim
	windows []int // as the exchange's
	permit  limiter.Permit
	hold    *hold           // nil unless some claims are concurrent
	once    []limiter.Claim // that it was the first of its kind; given back with all the rest
}

func newTaking(store limiter.Keeper, claims []limiter.Claim, windows []int, p limiter.Permit) taking {
	return taking{store: store, claims: claims, windows: windows, permit: p, hold: holds(store, claims, p)}
}

func (t taking) with(once []limiter.Claim) taking {
	t.once = once
	return t
}

// letGo ends what is held, whatever came of the request.
func (x *exchange) letGo() {
	for _, t := range x.takings {
		t.hold.end()
	}
}

// settle closes the account of a request that was admitted. What it took stays
// taken unless it never left this process, or its route or a limit wants this
// outcome not to count: then exactly that is given back, once. Concurrent
// permits are given back in any case, for their request is over. An outcome that
// nobody knows counts, since the upstream may have done what was asked. The
// client may have left by then, so its context does not bind. Limits in shadow
// mode are settled as if they were enforced.
func (a *admitter) settle(ctx context.Context, x *exchange) {
	for _, t := range x.takings {
		a.giveBack(ctx, x, t)
	}
	a.restart(ctx, x)
}

// giveBack gives back all claims of one taking, or those of limits that do not
// count the outcome.
func (a *admitter) giveBack(ctx context.Context, x *exchange, t taking) {
	x.back = x.back[:0]
	all := x.returns()
	var last *limit
	for i, c := range t.claims {
		of := x.route.windows[t.windows[i]].of
		if !all && !concurrent(c) && !of.uncounted(&x.result) {
			continue
		}
		x.back = append(x.back, c)
		if of != last && !concurrent(c) {
			x.returned = true
			a.metrics.refunds.WithLabelValues(x.route.name, of.name).Inc()
			last = of
		}
	}
	if all {
		x.back = append(x.back, t.once...)
	}
	if len(x.back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	began := time.Now()
	err := t.store.Refund(ctx, x.back, t.permit)
	a.metrics.asked("refund", time.Since(began), err)
	if err != nil {
		x.err = errors.Join(x.err, fmt.Errorf("give back: %w", err))
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
	kinds map[upstream.Kind]bool // Errors, as trips end
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

// kinds are the ways for a trip to end that an operator calls e.
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
