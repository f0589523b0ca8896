package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// settleTimeout is the most time that giving back may take.
const settleTimeout = time.Second

// A takenPermit is what one decision took, and of whom.
type takenPermit struct {
	store  limiter.AdminStore
	asked  claimSet
	permit limiter.Permit
	hold   *lease          // nil unless some claims are concurrent
	once   []limiter.Claim // that it was the first of its kind; given back with all the rest

	released bool // what is concurrent was given back
}

func newTakenPermit(store limiter.AdminStore, asked claimSet, p limiter.Permit) takenPermit {
	return takenPermit{store: store, asked: asked, permit: p, hold: holds(store, asked.claims, p)}
}

func (t takenPermit) with(once []limiter.Claim) takenPermit {
	t.once = once
	return t
}

// stopRenewing ends what is held, whatever came of the request.
func (q *admission) stopRenewing() {
	for _, t := range q.taken {
		t.hold.end()
	}
}

// A settlement is what is given back of what a request took.
type settlement struct {
	back     []limiter.Claim // of one taking
	returned bool            // something was
}

// settle closes the account of a request that was admitted. What it took stays
// taken unless it never left this process, or its route or a limit wants this
// outcome not to count: then exactly that is given back, once. Concurrent
// permits are given back in any case, for their request is over. An outcome that
// nobody knows counts, since the upstream may have done what was asked. The
// client may have left by then, so its context does not bind. Limits in shadow
// mode are settled as if they were enforced.
func (a *admitter) settle(ctx context.Context, q *admission, o *forwardOutcome) {
	for i := range q.taken {
		a.giveBack(ctx, q, &q.taken[i], o)
	}
}

// owes reports whether settling q takes a call of a store.
func (q *admission) owes(o *forwardOutcome) bool {
	all := q.returns(o)
	for i := range q.taken {
		t := &q.taken[i]
		if t.asked.has(func(l *limit) bool { return all || l.uncounted(&o.result) }) || t.hasHeld() {
			return true
		}
	}
	return false
}

// giveBack gives back all claims of one taking, or those of limits that do not
// count the outcome. What was released before is left out.
func (a *admitter) giveBack(ctx context.Context, q *admission, t *takenPermit, o *forwardOutcome) {
	q.settled.back = q.settled.back[:0]
	all := q.returns(o)
	var last *limit
	for i, c := range t.asked.claims {
		of := t.asked.windows[i].of
		if concurrent(c) {
			if !t.released {
				q.settled.back = append(q.settled.back, c)
			}
			continue
		}
		if !all && !of.uncounted(&o.result) {
			continue
		}
		q.settled.back = append(q.settled.back, c)
		if of != last {
			q.settled.returned = true
			a.metrics.refunds.WithLabelValues(q.route.Name, of.Name).Inc()
			last = of
		}
	}
	if all {
		q.settled.back = append(q.settled.back, t.once...)
	}
	a.refund(ctx, q, t)
}

// refund gives back q.settled.back, which is of t.
func (a *admitter) refund(ctx context.Context, q *admission, t *takenPermit) {
	if len(q.settled.back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	began := time.Now()
	err := t.store.Refund(ctx, q.settled.back, t.permit)
	a.metrics.asked("refund", time.Since(began), err)
	if err != nil {
		q.fail(fmt.Errorf("refund: %w", err))
	}
}

// restore has the decision say what is left once the permits are back that this status
// gives back: the client is told before they are. A value of a distinct limit may have
// stood before, and what is held stays held until the response's end, so of these the
// client hears what is so now. A failure that comes after the header, one of
// refund_on's cut for example, cannot be told any more.
func (q *admission) restore(status int, o *forwardOutcome) {
	all := o.refund || q.route.RefundOn.Status.Has(status)
	for i := range q.decision.Outcomes {
		c, of := q.claims.claims[i], q.claims.windows[i].of
		if !all && (of.Count == nil || of.Count.Has(status)) || concurrent(c) || c.Limit.Algorithm == limiter.Distinct {
			continue
		}
		left := &q.decision.Outcomes[i]
		left.Remaining, left.Wait = min(left.Remaining+c.Cost, c.Limit.Most()), 0
	}
}

// returns reports whether the request gives back all that it took.
func (q *admission) returns(o *forwardOutcome) bool {
	if o.result.Target == "" && q.route.pool != nil {
		return true // no target was asked
	}
	return o.refund || q.route.RefundOn.Status.Has(o.result.Status) || q.route.refunds[o.result.Kind]
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
