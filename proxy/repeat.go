package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A repeat holds the claims by which repeats of a request are recognized.
type repeat struct {
	first []limiter.Claim // the claim on the first use of the idempotency key; empty without a key
	all   []limiter.Claim // all claims that are taken in one step, including first
}

// repeats reports whether the request is a repeat that is not counted.
func (a *admitter) repeats(ctx context.Context, q *admission) (bool, error) {
	var d limiter.Decision
	if err := a.store.Peek(ctx, q.repeat.first, &d); err != nil || d.Allowed {
		return false, err
	}
	free := []limiter.Claim{{Limit: &q.route.repeats.repeats, Key: q.repeat.first[0].Key, Cost: 1, Source: q.source}}
	if err := a.take(ctx, free, &d); err != nil || !d.Allowed {
		q.repeat.first = nil // counted like a request without an idempotency key
		return false, err
	}
	q.repeated = true
	q.claims = q.claims.none()
	q.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: q.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce takes all claims of q and, with an idempotency key, the claim on its first use, in one
// step. Of two concurrent requests with the same key, the second is a repeat.
func (a *admitter) takeOnce(ctx context.Context, q *admission, take taker) error {
	if len(q.repeat.first) == 0 {
		return take(ctx, q.claims.claims, &q.decision)
	}
	if repeated, err := a.repeats(ctx, q); err != nil || repeated {
		return err
	}
	n := len(q.claims.claims)
	q.repeat.all = append(append(q.repeat.all[:0], q.claims.claims...), q.repeat.first...)
	if err := take(ctx, q.repeat.all, &q.decision); err != nil {
		return err
	}
	if n < len(q.decision.Outcomes) && !q.decision.Outcomes[n].Allowed {
		if repeated, err := a.repeats(ctx, q); err != nil || repeated {
			return err
		}
		return take(ctx, q.claims.claims, &q.decision)
	}
	q.decision.Outcomes = q.decision.Outcomes[:n]
	return nil
}
