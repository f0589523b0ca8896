package proxy

import (
	"context"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// longBody is from how many bytes on a body is worth a question to a shared store of
// its own.
const longBody = 4 << 10

// A localDenier is a store that may know by itself, without asking anybody, that claims are
// refused. redisstore.Store is one and says more.
type localDenier interface {
	Denied(claims []limiter.Claim, d *limiter.Decision) bool
}

// early refuses a request before its body is read, if a limit whose key is not in the
// body would refuse it anyway: who is over a limit by address sends no body for
// nothing, and keeps no memory. Nothing is taken: what takes is the one decision of
// admit, with all limits at once.
//
// It costs a shared store nothing when the body is short: then only refusals that
// are known here count. For a body that is long, or of unknown length, the store is
// asked what it would say. A store that cannot tell leaves it to admit.
//
// Not asked are limits in shadow mode and those that a request may wait for, and no
// limit at all where the body may yet tell that none counts: for a list that lets
// pass, or an idempotency key.
func (p *Proxy) early(ctx context.Context, g *generation, x *exchange) error {
	r := x.route
	if !x.foreseeable() {
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
	if len(x.claims.claims) > 0 && a.fallback.decider(&x.admission) != decideByShare && a.foresees(ctx, x) {
		a.fallback.note(&x.admission)
		if x.bothSecrets {
			x.mergePrevious()
		}
		a.metrics.decided(x.route, x.claims, &x.decision)
		x.decided = true
		ctx, cancel := a.bound(ctx)
		defer cancel()
		return a.refuse(ctx, &x.admission, a.store)
	}
	x.claims, x.bothSecrets = x.claims.none(), false // extract begins again; the keys stay
	return nil
}

// foreseeable reports whether there is a limit to ask before the body of x is read.
func (x *exchange) foreseeable() bool {
	r := x.route
	if len(r.early) == 0 || x.extracted.body != nil || x.in.length == 0 || x.bypasses() {
		return false
	}
	return r.Idempotency == nil || len(x.Header(r.Idempotency.Header)) == 0
}

// foresees reports whether the claims of x would be refused now, and fills its
// decision then.
func (a *admitter) foresees(client context.Context, x *exchange) bool {
	if a.denier != nil && a.denier.Denied(x.claims.claims, &x.decision) {
		return true
	}
	if a.shared && x.in.length >= 0 && x.in.length < longBody {
		return false
	}
	ctx, cancel := a.bound(client)
	defer cancel()
	err := a.store.Peek(ctx, x.claims.claims, &x.decision)
	return err == nil && !x.decision.Allowed
}

// foresee finds the limits that can be asked before a body is read; none where no key
// is in the body, or where that may tell that no limit counts.
func (r *route) foresee() {
	body := r.Idempotency != nil
	for _, l := range r.Lists {
		if inBody(l.Key) && l.Action == config.Bypass {
			return
		}
		body = body || inBody(l.Key)
	}
	var early []*limit
	for _, l := range r.limits {
		switch {
		case inBody(l.Key) || inBody(l.Distinct):
			body = true
		case l.Mode == config.Enforce && l.Wait == 0:
			early = append(early, l)
		}
	}
	if body {
		r.early = early
	}
}

// inBody reports whether the body has to be read for s; nil is no key.
func inBody(s *key.Spec) bool {
	return s != nil && slices.ContainsFunc(s.Origins(), func(o key.Origin) bool {
		return o.Source == key.JSON || o.Source == key.Form
	})
}
