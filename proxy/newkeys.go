package proxy

import (
	"errors"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// errNewKeys says that a client has sent more new keys than it may.
var errNewKeys = errors.New("too many new keys from this client")

// A newKeys says how a route treats new keys. It is immutable.
type newKeys struct {
	rate limiter.Rate // the zero Rate: any number may be new
	mode config.Mode
	of   []*key.Spec // the keys that clients can invent and that its limits count by
}

// compileNewKeys finds the keys that matter: those of limits that refuse somebody, or,
// if more new keys than allowed refuse nobody either, of all.
func compileNewKeys(from *config.Route) newKeys {
	n := newKeys{rate: from.NewKeys, mode: from.NewKeysMode}
	if n.rate.Count == 0 || n.mode == config.Off {
		return newKeys{}
	}
	for _, l := range from.Limits {
		if l.Mode == config.Off || l.Mode == config.Shadow && n.mode == config.Enforce {
			continue // what is on trial has nobody refused
		}
		for _, s := range []*key.Spec{l.Key, l.Distinct} {
			if s != nil && s.ClientChosen() {
				n.of = append(n.of, s)
			}
		}
	}
	return n
}

// looks reports whether a key is new matters.
func (n *newKeys) looks(s *key.Spec) bool { return slices.Contains(n.of, s) }

// newKeys asks whether a client has sent too many keys that nobody has sent lately:
// errNewKeys then. It is asked before any store, which each new key costs room;
// what is known is this process's own and outlives generations. Whom a list lets
// pass is not asked about.
func (p *Proxy) newKeys(x *exchange) error {
	n := &x.route.newKeys
	if len(n.of) == 0 || x.exempt {
		return nil
	}
	var room [8]limiter.Key
	keys := room[:0]
	for _, k := range x.keys {
		if !k.skip && n.looks(k.by) {
			keys = append(keys, k.bare)
		}
	}
	if p.guard.Knows(keys...) {
		return nil
	}
	a := p.guard.Admit(n.rate, limiter.KeyOf(x.route.name, x.network.String()), keys...)
	switch {
	case !a.New:
		return nil
	case !a.Refused:
		p.metrics.newKeys.WithLabelValues(x.route.name, allowed).Inc()
		return nil
	case n.mode == config.Shadow:
		x.newKeys = shadowRefused
		p.metrics.newKeys.WithLabelValues(x.route.name, shadowRefused).Inc()
		return nil
	}
	x.newKeys = refused
	p.metrics.newKeys.WithLabelValues(x.route.name, refused).Inc()
	x.decision = limiter.Decision{Wait: a.Wait, Outcomes: x.decision.Outcomes[:0]}
	return errNewKeys
}
