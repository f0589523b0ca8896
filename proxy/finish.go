package proxy

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
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
	x.stripe = p.shared.stripes.Own() // another processor may have continued after a lock
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
	p.admitter.countSends(x.sends)
	x.stopRenewing()
	if x.route != nil && x.route.hasBudgets {
		p.metrics.countSpending(&x.admission)
	}
	if x.isTraced() {
		p.endTrace(x)
	}
	p.recorder.record(x)
	x.generation.release(x.enteredBy)
	x.reset()
	if !x.reused {
		p.exchanges.Put(x)
	}
}

// countSpending counts what a request has cost that was not refunded, once for each limit, and shows what is
// left of budgets that all requests share.
func (m *proxyMetrics) countSpending(a *admission) {
	for i := range a.takenPermits {
		t := &a.takenPermits[i]
		for j, to := 0, 0; j < len(t.claims.claims); j = to {
			var of *limit
			of, to = t.claims.limitAt(j)
			if of.Prices != nil && (t.refunded == nil || !t.refunded[j]) {
				m.spend.WithLabelValues(of.Route, of.Name, of.Prices.Unit).Add(of.Prices.Float(t.claims.claims[j].Cost))
			}
		}
	}
	for i := range min(len(a.decision.Outcomes), len(a.claims.windows)) {
		w, o := a.claims.windows[i], a.decision.Outcomes[i]
		if w.of.Prices != nil && w.of.Key.From.Source.IsConstant() && a.decided && !o.Unknown {
			m.budgetRemaining.WithLabelValues(w.of.Route, w.of.Name, limiter.WindowName(w.Rate.Window)).Set(float64(o.Remaining) / float64(w.Rate.Count))
		}
	}
}
