package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/proxy/upstream"
)

// settleWithin is the most time that giving back may take.
const settleWithin = time.Second

// settle closes the account of a request that was admitted. What it took stays
// taken if the upstream may have seen it; a request that never left this
// process gets its permits back. The client may have left by then, so its
// context does not bind.
func (a *admitter) settle(ctx context.Context, x *exchange) {
	if x.decision.Permit.IsZero() || !kept(x.result.Kind) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	began := time.Now()
	err := x.store.Refund(ctx, x.claims, x.decision.Permit)
	a.metrics.asked("refund", time.Since(began), err)
}

// kept reports whether the request stayed in this process.
func kept(k upstream.Kind) bool { return k == upstream.NoTarget || k == upstream.Loop }
