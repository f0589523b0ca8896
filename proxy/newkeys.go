package proxy

import (
	"errors"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errNewKeys reports that a client has sent more new keys than it may.
var errNewKeys = errors.New("too many new keys from this client")

// limitedNewKeys returns the keys of a route for which new_keys limits new values: keys that clients
// can choose, of limits in enforce mode, or of all limits if new_keys itself is in shadow mode. It
// returns nil if new keys are not limited.
func limitedNewKeys(from *config.Route) (of []*key.Spec) {
	if from.NewKeys.Count == 0 || from.NewKeysMode == config.Off {
		return nil
	}
	for read := range from.Reads() {
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
	if len(r.newKeys) == 0 || x.exempt {
		return nil
	}
	var buf [8]limiter.Key
	keys := x.appendLimitedKeys(buf[:0])
	if p.guard.Known(keys...) {
		return nil
	}
	a := p.guard.Admit(r.NewKeys, limiter.KeyOf(r.Name, x.client.network.String()), keys...)
	switch {
	case !a.New:
		return nil
	case !a.Refused:
		p.metrics.newKeys.WithLabelValues(r.Name, allowed).Inc()
		return nil
	case r.NewKeysMode == config.Shadow:
		x.newKeys = shadowRefused
		p.metrics.newKeys.WithLabelValues(r.Name, shadowRefused).Inc()
		return nil
	}
	x.newKeys = refused
	p.metrics.newKeys.WithLabelValues(r.Name, refused).Inc()
	x.decision = limiter.Decision{Wait: a.Wait, Outcomes: x.decision.Outcomes[:0]}
	return errNewKeys
}

// appendLimitedKeys appends the keys of x for which new values are limited.
func (x *exchange) appendLimitedKeys(keys []limiter.Key) []limiter.Key {
	for _, k := range x.extracted.keys {
		if !k.skip && slices.Contains(x.route.newKeys, k.spec) {
			keys = append(keys, k.unkeyed)
		}
	}
	return keys
}
