package redisstore

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A lateGrant is what Redis granted to a call whose caller had given up.
type lateGrant struct {
	claims []limiter.Claim
	permit limiter.Permit
}

// addLate records that claims of c were granted, if nobody waits for c any more.
func (b *batch) addLate(c *call, claims []limiter.Claim, granted bool, at time.Time) {
	if granted && c.state == callAbandoned {
		b.late = append(b.late, lateGrant{claims, limiter.Permit{ID: c.id, At: at}})
	}
}

// refundLate refunds grants in the background. Redis has just replied, but the circuit breaker may still be open: it tries
// again until lateTimeout is over.
func (p *pipeline) refundLate(grants []lateGrant) {
	if len(grants) == 0 {
		return
	}
	open := grants // captured, so that a call without late grants allocates nothing
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(p.store.outage.ctx, lateTimeout)
		defer cancel()
		for len(open) > 0 && ctx.Err() == nil {
			waits := make([]func() error, len(open))
			for i, g := range open {
				waits[i] = p.store.StartRefund(g.claims, g.permit)
			}
			var failed []lateGrant
			for i, wait := range waits {
				if wait() != nil {
					failed = append(failed, open[i])
				}
			}
			if open = failed; len(open) > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(probeInterval):
				}
			}
		}
	})
}
