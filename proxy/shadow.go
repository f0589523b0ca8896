package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
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
		a.metrics.decision(l, decisionShadowRefused).Inc(q.stripe)
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
		a.metrics.countDecisions(q.stripe, set, &s.Decision)
		q.addShadowRefusals(set, &s.Decision)
		q.addTaken(a.store, set, &s.Decision, nil)
		switch {
		case of.shadowNotes == nil || q.isShared:
		case s.Decision.Allowed:
			a.countTaken(q, set)
		default:
			a.noteShadowRefusal(ctx, q, of, &set.claims[0])
		}
	}
}

// shadowNotes returns the limit under which the requests are noted that a limit in shadow mode would have refused, under
// their subjects, over the longest window. It refuses nothing.
func shadowNotes(of *config.Limit) *limiter.Limit {
	if of.Return == nil || of.Mode != config.Shadow {
		return nil
	}
	notes := sends.Unlimited(of.ID+":shadow:refused", longestWindow(of.Rates))
	return &notes
}

// A shadowNote is a request that a limit in shadow mode would have refused.
type shadowNote struct {
	of     *limit
	claims []limiter.Claim
	permit limiter.Permit
}

// noteShadowRefusal notes, and counts, that of would have refused the request with a claim. If a response returns permits of the
// subject later, the refusal would have been wrong: see countWrong.
func (a *admitter) noteShadowRefusal(ctx context.Context, q *admission, of *limit, c *limiter.Claim) {
	n := shadowNote{of: of, claims: []limiter.Claim{{Limit: of.shadowNotes, Key: c.Key, Cost: 1, Value: c.Value, Source: q.source}}}
	var d limiter.Decision
	began := time.Now()
	err := a.store.Take(ctx, append(of.sends.Claims(sends.Refused, c.Key, 1), n.claims...), &d)
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
		q.sends = append(q.sends, n.of.sends.Claims(sends.Withdrawn, n.claims[0].Key, 1)...)
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
		a.countSends(of.sends.AllClaims(sends.Wrong, int64(n)))
		return err
	}
}

// newSends returns what counts the requests of a limit with return_on, or nil.
func newSends(of *config.Limit, notes *limiter.Limit) *sends.Counter {
	if of.Return == nil {
		return nil
	}
	return sends.NewCounter(sends.Options{ID: of.ID, Window: longestWindow(of.Rates), Buckets: of.Algorithm.HasConversion(), Notes: notes})
}

// countTaken counts a request that has taken the permits of set, once for each limit with return_on.
func (a *admitter) countTaken(q *admission, set claimSet) {
	for from, to := 0, 0; from < len(set.claims); from = to {
		var of *limit
		if of, to = set.limitAt(from); of.sends != nil && set.currentIndex(from) == from && !set.windows[from].isStepUp {
			q.sends = append(q.sends, of.sends.Claims(sends.Counted, set.claims[from].Key, set.claims[from].Cost)...)
			a.metrics.sends.WithLabelValues(of.Route, of.Name, sends.Counted.String()).Inc()
		}
	}
}

// countSends takes claims that count requests; no client waits for it. Nothing is counted while the store is unreachable.
func (a *admitter) countSends(claims []limiter.Claim) {
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	var d limiter.Decision
	began := time.Now()
	err := a.sharedStore().Take(ctx, claims, &d)
	if a.timeout > 0 {
		a.metrics.observeStoreCall("count", time.Since(began), err)
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
