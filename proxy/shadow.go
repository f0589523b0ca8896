package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
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
		if !s.Decision.Allowed && of.Return != nil && set.claims[0].Value != (limiter.Key{}) {
			a.noteShadowRefusal(ctx, q, of, set.claims[0].Value)
		}
	}
}

// maxShadowNotes is how many requests of a subject are noted that a limit in shadow mode would have refused.
const maxShadowNotes = 64

// shadowNotes returns the limit under which those requests are noted, with the subject as key and as subject, over
// the longest window. It refuses nothing.
func shadowNotes(of *config.Limit) *limiter.Limit {
	if of.Return == nil || of.Mode != config.Shadow {
		return nil
	}
	rate := limiter.Rate{Count: maxShadowNotes}
	for _, counted := range of.Rates {
		rate.Window = max(rate.Window, counted.Window)
	}
	return &limiter.Limit{Name: of.ID + ":shadow:refused", Rate: rate, Noted: true}
}

// A shadowNote is a request that a limit in shadow mode would have refused.
type shadowNote struct {
	of     *limit
	claims []limiter.Claim
	permit limiter.Permit
}

// noteShadowRefusal notes that of would have refused q. If a response returns permits of the subject later, the refusal
// would have been wrong: see countWrong.
func (a *admitter) noteShadowRefusal(ctx context.Context, q *admission, of *limit, subject limiter.Key) {
	n := shadowNote{of: of, claims: []limiter.Claim{{Limit: of.shadowNotes, Key: subject, Cost: 1, Value: subject, Source: q.source}}}
	var d limiter.Decision
	began := time.Now()
	err := a.store.Take(ctx, n.claims, &d)
	a.metrics.observeStoreCall("take", time.Since(began), err)
	if err == nil && d.Allowed {
		n.permit = d.Permit
		q.shadowNotes = append(q.shadowNotes, n)
	}
}

// refundShadowNotes withdraws the notes of a request whose permits the rule refunds: no code of it can be used.
func (a *admitter) refundShadowNotes(q *admission, rule refundRule) {
	q.shadowNotes = slices.DeleteFunc(q.shadowNotes, func(n shadowNote) bool {
		if !rule.applies(n.of) {
			return false
		}
		q.settled.start("refund", startRefund(a.store, n.claims, n.permit))
		return true
	})
}

// countWrong counts the requests of a subject that a limit in shadow mode would have refused, and whose code was used.
func (a *admitter) countWrong(of *limit, subject limiter.Key) (wait func() error) {
	if of.shadowNotes == nil {
		return func() error { return nil }
	}
	returned := startReturn(a.store, []*limiter.Limit{of.shadowNotes}, subject)
	return func() error {
		n, err := returned()
		a.metrics.shadowWrong.WithLabelValues(of.Route, of.Name).Add(float64(n))
		return err
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
