package proxy

import (
	"context"
	"time"
)

// settleWithin is the most time that giving back may take.
const settleWithin = time.Second

// settle closes the account of a request that was admitted. What it took stays
// taken if a target was asked, whatever came of that; a request that never left
// this process gets its permits back. The client may have left by then, so its
// context does not bind.
func (a *admitter) settle(ctx context.Context, x *exchange) {
	if x.decision.Permit.IsZero() || x.result.Target != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	began := time.Now()
	err := x.store.Refund(ctx, x.claims, x.decision.Permit)
	a.metrics.asked("refund", time.Since(began), err)
}
