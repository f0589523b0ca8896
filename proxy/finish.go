package proxy

import (
	"context"
	"time"
)

// maxSettling is the maximum number of requests that are settled concurrently after their
// responses.
const maxSettling = 10_000

// finish ends a request whose response has been written, except for what net/http buffers until
// ServeHTTP returns. Refunds to a store over the network are made, and waited for if they were
// started before the head of the response, in a goroutine after that, so that no client waits for
// them; the exchange then outlives its handler. If there are more than maxSettling, the request
// waits for its refund.
func (p *Proxy) finish(ctx context.Context, x *exchange) {
	if x.duration == 0 || x.trace != nil { // otherwise it was measured together with the upstream's duration
		x.duration = time.Since(x.began) // in a trace the span must not end before the upstream's
	}
	if x.generation.accessLog.needsUserAgent {
		x.saveUserAgent()
	}
	p.shared.observe(x)
	a := p.admitter
	if a.timeout > 0 && x.outcome.known && x.needsRefund(&x.outcome) {
		if a.settling.Add(1) <= maxSettling {
			x.detach()
			go func() { // #nosec G118 -- the request's context ends with its handler
				defer a.settling.Add(-1)
				p.end(context.Background(), x)
			}()
			return
		}
		a.settling.Add(-1)
	}
	p.end(ctx, x)
}

// end settles x and writes its log line. x must not be used afterwards. A request that was aborted
// before there was an outcome stays counted.
func (p *Proxy) end(ctx context.Context, x *exchange) {
	if x.outcome.known {
		p.admitter.settle(ctx, &x.admission, &x.outcome)
	}
	x.stopRenewing()
	if x.route != nil && x.route.hasBudgets {
		p.metrics.countSpending(&x.admission)
	}
	if x.isTraced() {
		p.endTrace(x)
	}
	p.recorder.record(x)
	x.generation.release()
	x.reset()
	if !x.reused {
		p.exchanges.Put(x)
	}
}
