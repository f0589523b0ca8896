package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
)

// addGroups adds each limit of shadows as a group: it decides for itself if the request is allowed, and a refusal by one
// prevents no other from counting.
func (s claimSet) addGroups(shadows claimSet) claimSet {
	group := uint8(0)
	for i := range shadows {
		if i == 0 || shadows.window(i).of != shadows.window(i-1).of {
			group++
		}
		shadows[i].Group = group
	}
	return append(s, shadows...)
}

// decideShadow records what the limits in shadow mode have decided about q, which is allowed. It lets
// them decide if the call that decided about q did not, as for a request that could wait.
func (a *admitter) decideShadow(ctx context.Context, q *admission) {
	for _, l := range q.shadowErrors {
		a.metrics.decision(l, decisionShadowRefused).Inc(q.stripe)
	}
	permit := q.decision.Permit
	if len(q.shadows) != len(q.shadowOutcomes) {
		d := limiter.Decision{Outcomes: q.shadowOutcomes[:0]}
		q.asked = q.asked[:0].addGroups(q.shadows)
		if a.take(ctx, q.asked, &d) != nil {
			d.Outcomes = d.Outcomes[:0]
			d.AddFailed(len(q.shadows))
		}
		q.shadowOutcomes, permit = d.Outcomes, d.Permit
	}
	for from, to := 0, 0; from < len(q.shadows); from = to {
		var of *limit
		of, to = q.shadows.limitAt(from)
		set, outcomes := q.shadows[from:to], q.shadowOutcomes[from:to]
		_, _, said := set.decidedAt(0, outcomes)
		if said.IsFailed() {
			a.metrics.countUnavailable(q, of)
			continue
		}
		taken := permit
		if !said.Allowed {
			taken = limiter.Permit{}
		}
		a.metrics.countDecisions(q.stripe, set, outcomes)
		q.addShadowRefusals(set, outcomes)
		q.addTaken(a.store, set, taken, nil)
		switch {
		case of.shadowNotes == nil || q.isShared:
		case said.Allowed:
			a.countTaken(q, set)
		default:
			a.noteShadowRefusal(ctx, q, of, &set[0])
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
	err := a.metrics.measure("take", func() error {
		return a.store.Take(ctx, append(of.sends.Claims(sends.Refused, c.Key, 1), n.claims...), &d)
	})
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
	for from, to := 0, 0; from < len(set); from = to {
		var of *limit
		if of, to = set.limitAt(from); of.sends != nil && set.currentIndex(from) == from && !set.window(from).isStepUp {
			q.sends = append(q.sends, of.sends.Claims(sends.Counted, set[from].Key, set[from].Cost)...)
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

// addShadowRefusals records what claims on a limit in shadow mode would have refused. A
// key that is counted under two secrets is recorded once.
func (a *admission) addShadowRefusals(set claimSet, outcomes []limiter.Outcome) {
	for i, o := range outcomes {
		w := set.window(i)
		if !o.Allowed && !slices.ContainsFunc(a.shadowRefusals, func(s refusal) bool { return s.window == w }) {
			a.shadowRefusals = append(a.shadowRefusals, refusal{w, set[i].Key, o.Banned, o.Wait})
		}
	}
}
