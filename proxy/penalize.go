package proxy

import (
	"context"
	"fmt"

	"github.com/weir-proxy/weir/limiter"
)

// penalize counts the refusals of limits that have a penalty, and bans the key
// of a limit that has refused it too often. It is asked after a refusal that no
// ban has caused, so a key costs at most so many calls before its ban, and none
// during it. A count that the store cannot make is left out: the request is
// refused anyway.
func (a *admitter) penalize(ctx context.Context, q *admission, by limiter.AdminStore) {
	for from, to := 0, 0; from < len(q.claims.claims); from = to {
		var of *limit
		of, to = q.claims.limit(from)
		refused, banned := false, false
		for _, o := range q.decision.Outcomes[from:to] {
			refused = refused || !o.Allowed
			banned = banned || o.Banned
		}
		if of.Penalty == nil || !refused || banned {
			continue
		}
		if err := a.penalty(ctx, q, by, from, to); err != nil {
			q.fail(fmt.Errorf("count a refusal: %w", err))
		}
	}
}

// penalty counts one refusal of the limit of claims from to to, and bans when
// that was the last one to be had.
func (a *admitter) penalty(ctx context.Context, q *admission, by limiter.AdminStore, from, to int) error {
	of := q.claims.windows[from].of
	count := []limiter.Claim{{Limit: &of.refusals, Key: q.claims.claims[from].Key, Cost: 1, Source: q.source}}
	var d limiter.Decision
	if err := by.Take(ctx, count, &d); err != nil {
		return err
	}
	if d.Allowed && d.Outcomes[0].Remaining > 0 {
		return nil
	}
	if err := by.Ban(ctx, q.claims.claims[from:to], of.Penalty.Ban); err != nil {
		return err
	}
	a.metrics.bans.WithLabelValues(q.route.Name, of.Name).Inc()
	q.banned = true
	for i := from; i < to; i++ {
		o := &q.decision.Outcomes[i]
		o.Allowed, o.Unknown, o.Banned, o.Remaining, o.Wait = false, false, true, 0, max(o.Wait, of.Penalty.Ban)
		q.decision.Wait = max(q.decision.Wait, o.Wait)
	}
	return by.Reset(ctx, count)
}
