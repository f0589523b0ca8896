package proxy

import (
	"errors"
	"fmt"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// early is Proxy.early that counts nothing.
func (e *explainer) early() (string, error) {
	x, r := e.x, e.x.route
	if !x.foreseeable() {
		return "", nil
	}
	if err := x.readQuery(); err != nil {
		return "", err
	}
	for _, l := range r.early {
		if err := e.generation.claim(x, l); err != nil {
			return "", err
		}
	}
	err := e.ask()
	if errors.Is(err, errRefused) {
		return "", fmt.Errorf("%w, before the body is read", err)
	}
	x.claims, x.bothSecrets = x.claims.none(), false
	return "", nil // a store that cannot tell leaves it to admit
}

// newKeys is Proxy.newKeys that learns nothing.
func (e *explainer) newKeys() (string, error) {
	x, r := e.x, e.x.route
	if len(r.newKeys) == 0 || x.exempt {
		return "", nil
	}
	a := e.proxy.guard.Peek(r.NewKeys, limiter.KeyOf(r.Name, x.client.network.String()), x.bounded(nil)...)
	switch {
	case !a.New:
		return "no key is new", nil
	case !a.Refused:
		return "a key is new; the client may send one", nil
	case r.NewKeysMode == config.Shadow:
		return "too many new keys from this client (shadow)", nil
	}
	x.decision = limiter.Decision{Wait: a.Wait, Outcomes: x.decision.Outcomes[:0]}
	return "", errNewKeys
}

// admit is admitter.admit that takes nothing.
func (e *explainer) admit() (string, error) {
	x := e.x
	e.Decision.Asked, e.Decision.Allowed = len(x.claims.claims) > 0, true
	if len(x.claims.claims) == 0 {
		e.Decision.Reason = x.notAsked()
		return e.Decision.Reason, nil
	}
	if repeat, err := e.repeats(); err != nil || repeat {
		e.Decision.Repeat = repeat
		return "it repeats a counted request, and does not count", err
	}
	err := e.ask()
	switch {
	case errors.Is(err, errRefused) && x.worthWaiting():
		detail := "it waits " + x.decision.Wait.String() + " for a permit, if the queue is empty"
		e.Decision.Reason = detail
		return detail, nil
	case err != nil && !errors.Is(err, errRefused):
		e.Decision.Asked = false
		e.Decision.Reason = "the store is unreachable; on_store_failure of each limit applies"
		if x.claims.has(func(l *limit) bool { return l.OnStoreFailure == config.Deny }) {
			e.Decision.Allowed = false
			return "", errUndecided
		}
		x.claims = x.claims.none()
		return e.Decision.Reason, nil
	}
	e.Decision.Allowed = err == nil
	return "", err
}

// ask asks what all claims of x would be told.
func (e *explainer) ask() error {
	a, x := e.proxy.admitter, e.x
	ctx, cancel := a.bound(e.ctx)
	defer cancel()
	if err := a.store.Peek(ctx, x.claims.claims, &x.decision); err != nil {
		return fmt.Errorf("ask the limits: %w", err)
	}
	if x.bothSecrets {
		x.mergePrevious()
	}
	if x.decision.Allowed {
		return nil
	}
	x.shortenRetry()
	e.Decision.Asked, e.Decision.WaitMS = true, x.decision.Wait.Milliseconds()
	return errRefused
}

// repeats is admitter.repeats that takes nothing.
func (e *explainer) repeats() (bool, error) {
	x, a := e.x, e.proxy.admitter
	if len(x.repeat.first) == 0 {
		return false, nil
	}
	ctx, cancel := a.bound(e.ctx)
	defer cancel()
	var d limiter.Decision
	if err := a.store.Peek(ctx, x.repeat.first, &d); err != nil || d.Allowed {
		return false, nil //nolint:nilerr // a store that cannot tell is met again by admit
	}
	free := []limiter.Claim{{Limit: &x.route.repeats.repeats, Key: x.repeat.first[0].Key, Cost: 1, Source: x.source}}
	if err := a.store.Peek(ctx, free, &d); err != nil || !d.Allowed {
		return false, nil //nolint:nilerr // as above
	}
	x.claims = x.claims.none()
	return true, nil
}

// worthWaiting reports whether each limit that refuses lets requests wait that long.
func (q *admission) worthWaiting() bool {
	for i, o := range q.decision.Outcomes {
		if !o.Allowed && o.Wait > q.claims.windows[i].of.Wait {
			return false
		}
	}
	return true
}

// notAsked is why no limit that refuses is asked about x.
func (x *exchange) notAsked() string {
	switch {
	case x.list != nil && x.list.Action == config.Bypass:
		return "the list " + x.list.Name + " bypasses limits"
	case x.exempt:
		return "CORS preflight"
	case len(x.route.limits) == 0:
		return "the route has no limits"
	}
	return "no enforced limit applies"
}
