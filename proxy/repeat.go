package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An idempotencyClaims holds the claims by which repeats of a request are recognized.
type idempotencyClaims struct {
	firstUse []limiter.Claim // the claim on the first use of the idempotency key; empty without a key
	all      []limiter.Claim // all claims that are taken in one step, including first
}

// isRepeat reports whether the request is a repeat that is not counted.
func (a *admitter) isRepeat(ctx context.Context, q *admission) (bool, error) {
	var d limiter.Decision
	if err := a.store.Peek(ctx, q.idempotent.firstUse, &d); err != nil || d.Allowed {
		return false, err
	}
	free := []limiter.Claim{{Limit: &q.route.idempotency.repeats, Key: q.idempotent.firstUse[0].Key, Cost: 1, Source: q.source}}
	if err := a.take(ctx, free, &d); err != nil || !d.Allowed {
		q.idempotent.firstUse = nil // counted like a request without an idempotency key
		return false, err
	}
	q.isRepeat = true
	q.claims = q.claims.empty()
	q.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: q.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce takes all claims of q and, with an idempotency key, the claim on its first use, in one
// step. Of two concurrent requests with the same key, the second is a repeat.
func (a *admitter) takeOnce(ctx context.Context, q *admission, take taker) error {
	if len(q.idempotent.firstUse) == 0 {
		return take(ctx, q.claims.claims, &q.decision)
	}
	if repeated, err := a.isRepeat(ctx, q); err != nil || repeated {
		return err
	}
	n := len(q.claims.claims)
	q.idempotent.all = append(append(q.idempotent.all[:0], q.claims.claims...), q.idempotent.firstUse...)
	if err := take(ctx, q.idempotent.all, &q.decision); err != nil {
		return err
	}
	if n < len(q.decision.Outcomes) && !q.decision.Outcomes[n].Allowed {
		if repeated, err := a.isRepeat(ctx, q); err != nil || repeated {
			return err
		}
		return take(ctx, q.claims.claims, &q.decision)
	}
	q.decision.Outcomes = q.decision.Outcomes[:n]
	return nil
}
