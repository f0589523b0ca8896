package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A repeat is what a request and its repeats are known by.
type repeat struct {
	first []limiter.Claim // to be the first of its kind; none without an idempotency key
	all   []limiter.Claim // what is asked in one step: first and all else
}

// repeats reports whether the request is a repeat that does not count. An error
// means that it is not known.
func (a *admitter) repeats(ctx context.Context, q *admission) (bool, error) {
	var d limiter.Decision
	if err := a.store.Peek(ctx, q.repeat.first, &d); err != nil || d.Allowed {
		return false, err
	}
	free := []limiter.Claim{{Limit: &q.route.repeats.repeats, Key: q.repeat.first[0].Key, Cost: 1, Source: q.source}}
	if err := a.take(ctx, free, &d); err != nil || !d.Allowed {
		q.repeat.first = nil // it counts, but as no first one
		return false, err
	}
	q.repeated = true
	q.claims = q.claims.none()
	q.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: q.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce asks for all claims of q and, with an idempotency key, for being the first of its
// kind, in one step. Of two that come at once the second is a repeat.
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
