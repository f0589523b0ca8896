package proxy

import (
	"context"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// longBody is the length in bytes from which it is worth a separate call to a shared store to
// refuse a request before its body is read.
const longBody = 4 << 10

// A localDenier is a store that can refuse some claims without I/O, from a local cache of refusals.
// See redisstore.Store.
type localDenier interface {
	Denied(claims []limiter.Claim, d *limiter.Decision) bool
}

// early refuses a request before its body is read, if a limit whose key is not in the body would
// refuse it anyway. A client that is over a limit by address then sends no body in vain, and uses
// no memory. Nothing is taken: admit decides about all limits at once.
//
// For a short body, only the local cache of refusals is used, which costs no call to a shared
// store. For a body that is long or of unknown length, the store is peeked. If the store is
// unreachable, the decision is left to admit.
//
// Limits in shadow mode and limits with wait or step_up are not evaluated. No limit is evaluated if the body
// may still determine that none applies: by a bypass list, or with an idempotency key.
func (p *Proxy) early(ctx context.Context, g *generation, x *exchange) error {
	r := x.route
	if !x.hasEarlyLimits() {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range r.early {
		if err := g.claim(x, l); err != nil {
			return err
		}
	}
	a := p.admitter
	if len(x.claims.claims) > 0 && a.fallback.decider(&x.admission) != decideByShare && a.refusesEarly(ctx, x) {
		a.fallback.record(&x.admission)
		if x.bothSecrets {
			x.mergePrevious()
		}
		a.metrics.countDecisions(x.stripe, x.claims, &x.decision)
		x.decided = true
		ctx, cancel := a.withTimeout(ctx)
		defer cancel()
		return a.refuse(ctx, &x.admission, a.store)
	}
	x.claims, x.bothSecrets = x.claims.empty(), false // extract adds the claims again; the keys are kept
	return nil
}

// hasEarlyLimits reports whether there is a limit to evaluate before the body of x is read.
func (x *exchange) hasEarlyLimits() bool {
	r := x.route
	if len(r.early) == 0 || x.extracted.body != nil || x.in.length == 0 || !x.due.IsZero() || x.bypasses() {
		return false
	}
	return r.Idempotency == nil || len(x.Header(r.Idempotency.Header)) == 0
}

// refusesEarly reports whether the claims of x would be refused now. If so, it fills the decision of x.
func (a *admitter) refusesEarly(client context.Context, x *exchange) bool {
	if a.denier != nil && a.denier.Denied(x.claims.claims, &x.decision) {
		return true
	}
	if a.shared && x.in.length >= 0 && x.in.length < longBody {
		return false
	}
	ctx, cancel := a.withTimeout(client)
	defer cancel()
	err := a.store.Peek(ctx, x.claims.claims, &x.decision)
	return err == nil && !x.decision.Allowed
}

// findEarlyLimits sets the limits that can be evaluated before a body is read. There are none if no key is
// in the body, or if the body may determine that no limit applies.
func (r *route) findEarlyLimits() {
	body := r.Idempotency != nil
	for _, l := range r.Lists {
		if l.Key.InBody() && l.Action == config.Bypass {
			return
		}
		body = body || l.Key.InBody()
	}
	var early []*limit
	for _, l := range r.limits {
		late := false
		for read := range l.Reads() {
			late = late || read.Key.InBody()
		}
		switch {
		case late:
			body = true
		case l.Mode == config.Enforce && l.Wait == 0 && l.StepUp == nil:
			early = append(early, l)
		}
	}
	if body {
		r.early = early
	}
}
