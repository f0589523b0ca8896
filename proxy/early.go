package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
)

// longBody is the length in bytes from which it is worth a separate call to a shared store to
// refuse a request before its body is read.
const longBody = 4 << 10

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
func (p *Proxy) early(ctx context.Context, x *exchange) error {
	if err := x.generation.claimEarly(x); err != nil {
		return err
	}
	effort := limit.AskStore
	if x.in.length >= 0 && x.in.length < longBody {
		effort = limit.AskLocally
	}
	if err := p.admitter.RefuseEarly(ctx, &x.Admission, effort); err != nil {
		return err
	}
	x.DropClaims() // extract adds the claims again; the keys are kept
	return nil
}

// claimEarly makes the claims of the limits that are evaluated before the body of x is read, if any are.
func (g *generation) claimEarly(x *exchange) error {
	if !x.hasEarlyLimits() {
		return nil
	}
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, l := range x.route.early {
		if err := g.claim(x, l); err != nil {
			return err
		}
	}
	return nil
}

// hasEarlyLimits reports whether there is a limit to evaluate before the body of x is read.
func (x *exchange) hasEarlyLimits() bool {
	r := x.route
	if len(r.early) == 0 || x.extracted.body != nil || x.in.length == 0 || !x.Due.IsZero() || x.bypasses() {
		return false
	}
	return r.Idempotency == nil || len(x.Header(r.Idempotency.Header)) == 0
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
	var early []*limit.Limit
	for _, l := range r.Active {
		switch {
		case slices.ContainsFunc(l.Reads(), func(r config.Read) bool { return r.Key.InBody() }):
			body = true
		case l.IsEarly():
			early = append(early, l)
		}
	}
	if body {
		r.early = early
	}
}

// errNewKeys reports that a client has sent more new keys than it may.
var errNewKeys = errors.New("too many new keys from this client")

// limitedNewKeys returns the keys of a route for which new_keys limits new values: keys that clients
// can choose, of limits in enforce mode, or of all limits if new_keys itself is in shadow mode. It
// returns nil if new keys are not limited.
func limitedNewKeys(from *config.Route) (of []*key.Spec) {
	if from.NewKeys.Count == 0 || from.NewKeysMode == config.Off {
		return nil
	}
	for _, read := range from.Reads() {
		if read.Mode == config.Off || read.Mode == config.Shadow && from.NewKeysMode == config.Enforce {
			continue // a limit in shadow mode must not cause refusals
		}
		if read.Purpose.Counts() && read.Key.ClientChosen() {
			of = append(of, read.Key)
		}
	}
	return of
}

// newKeys returns errNewKeys if a client has sent too many keys that were not seen recently. It
// runs before any call to the store, where each new key uses memory. The known keys are kept in
// this process and outlive generations. Requests on a bypass list are not checked.
func (p *Proxy) newKeys(x *exchange) error {
	r := x.route
	if x.Exempt {
		return nil
	}
	var buf [8]limiter.Key
	keys := x.appendLimitedKeys(buf[:0])
	if p.guard.Known(keys...) {
		return nil
	}
	a := p.guard.Admit(r.NewKeys, limiter.KeyOf(r.Name, x.client.network.String()), keys...)
	if !a.New {
		return nil
	}
	result := limit.Allowed
	if a.Refused {
		result = limit.Refused
		if r.NewKeysMode == config.Shadow {
			result = limit.ShadowRefused
		}
		x.newKeys = result
	}
	p.metrics.newKeys.WithLabelValues(r.Name, result).Inc()
	if result != limit.Refused {
		return nil
	}
	x.Decision = limiter.Decision{Wait: a.Wait, Outcomes: x.Decision.Outcomes[:0]}
	return errNewKeys
}

// appendLimitedKeys appends the keys of x for which new values are limited.
func (x *exchange) appendLimitedKeys(keys []limiter.Key) []limiter.Key {
	for _, k := range x.extracted.keys {
		if !k.Skip && slices.Contains(x.route.newKeys, k.Spec) {
			keys = append(keys, k.Unkeyed)
		}
	}
	return keys
}

// maxIdempotencyKey is the maximum length of an idempotency key in bytes.
const maxIdempotencyKey = 255

// errIdempotencyKey reports that the idempotency key of a request is not valid.
var errIdempotencyKey = errors.New("idempotency key not acceptable")

// idempotency makes the claims that recognize repeats of the request: requests with the same
// idempotency key, method, target, body and Authorization, and the same keys, counted values and costs of
// limits, those in shadow mode only if there are no others: upstreams keep idempotency keys by account. Cookies may differ, because they are renewed. A request
// without an idempotency key has no repeats, and neither has one with a body that is not known.
func (g *generation) idempotency(x *exchange) error {
	i, counted := x.route.Repeats, x.Claims
	if len(counted) == 0 {
		counted = x.Shadow.Claims // beside others they decide nothing
	}
	if len(counted) == 0 {
		return nil
	}
	sent := x.Header(i.Header)
	switch {
	case x.Confused(key.HeaderField(i.Header)):
		return fmt.Errorf("header:%s: %w: some servers read another name as this one", i.Header, key.ErrAmbiguous)
	case len(sent) == 0:
		return nil
	case len(sent) > 1:
		return fmt.Errorf("header:%s: %w", i.Header, key.ErrAmbiguous)
	case sent[0] == "" || len(sent[0]) > maxIdempotencyKey || strings.ContainsFunc(sent[0], func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return fmt.Errorf("header:%s: %w: write 1 to %d ASCII characters", i.Header, errIdempotencyKey, maxIdempotencyKey)
	}
	body, err := x.Body()
	if err != nil || len(body.Bytes) == 0 && x.in.length != 0 { // another proxy keeps the body: nobody knows whether it is the same
		return err
	}
	sum := sha256.Sum256(body.Bytes)
	parts := []string{"idempotency", sent[0], x.request.Method, x.request.Host, x.request.Forwarded, x.request.RawQuery, body.Type, string(sum[:]), strings.Join(x.Header("Authorization"), "\x00")}
	for _, c := range counted {
		parts = append(parts, string(c.Key[:]), string(c.Value[:]), fmt.Sprint(c.Cost))
	}
	x.FirstUse = []limiter.Claim{{Limit: &i.FirstUse, Key: g.config.Privacy.Hash(parts), Cost: 1, Source: x.Source}}
	return nil
}
