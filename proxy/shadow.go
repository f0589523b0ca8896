package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// takerFor returns what takes the claims of q: in the same call of the store, each limit in shadow
// mode takes its own if they are allowed. A refusal by one prevents no other from counting.
func (a *admitter) takerFor(q *admission) taker {
	switch {
	case !q.due.IsZero() && a.timeout > 0:
		return a.takeInTime // those in shadow mode take theirs afterwards
	case len(q.shadows.claims) == 0:
		return a.take
	}
	return a.takeWithShadows(q)
}

// takeWithShadows returns a taker that takes the claims of q on limits in shadow mode as well.
func (a *admitter) takeWithShadows(q *admission) taker {
	return func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		q.splitShadows()
		began := time.Now()
		err := limiter.TakeWithShadows(ctx, a.store, claims, d, q.shadowSets)
		if a.timeout > 0 {
			a.metrics.observeStoreCall("take", time.Since(began), err)
		}
		q.shadowsTaken = err == nil && d.Allowed
		return err
	}
}

// splitShadows splits the claims on limits in shadow mode by their limits.
func (a *admission) splitShadows() {
	a.shadowSets = a.shadowSets[:0]
	for from, to := 0, 0; from < len(a.shadows.claims); from = to {
		_, to = a.shadows.limitAt(from)
		if n := len(a.shadowSets); n < cap(a.shadowSets) {
			a.shadowSets = a.shadowSets[:n+1] // with the memory for outcomes of an earlier request
		} else {
			a.shadowSets = append(a.shadowSets, limiter.Shadow{})
		}
		s := &a.shadowSets[len(a.shadowSets)-1]
		s.Claims, s.Err = a.shadows.claims[from:to], nil
	}
}

// decideShadow records what the limits in shadow mode have decided about q, which is allowed. It lets
// them decide if the call that decided about q did not, as for a request that could wait.
func (a *admitter) decideShadow(ctx context.Context, q *admission) {
	for _, l := range q.shadowErrors {
		a.metrics.decision(l, decisionShadowRefused).Inc()
	}
	if len(q.shadows.claims) == 0 {
		return
	}
	if !q.shadowsTaken {
		var d limiter.Decision
		if a.takeWithShadows(q)(ctx, nil, &d) != nil {
			return
		}
	}
	from := 0
	for i := range q.shadowSets {
		s := &q.shadowSets[i]
		of, to := q.shadows.limitAt(from)
		set := q.shadows.slice(from, to)
		from = to
		if s.Err != nil {
			a.metrics.countUnavailable(q, of)
			continue
		}
		a.metrics.countDecisions(set, &s.Decision)
		q.addShadowRefusals(set, &s.Decision)
		q.addTaken(a.store, set, &s.Decision, nil)
	}
}

// addShadowRefusals records what d, the decision about claims on a limit in shadow mode, would have refused. A
// key that is counted under two secrets is recorded once.
func (a *admission) addShadowRefusals(set claimSet, d *limiter.Decision) {
	for i, o := range d.Outcomes {
		w := set.windows[i]
		if !o.Allowed && !slices.ContainsFunc(a.shadowRefusals, func(s refusal) bool { return s.window == w }) {
			a.shadowRefusals = append(a.shadowRefusals, refusal{w, set.claims[i].Key, o.Banned, o.Wait})
		}
	}
}
