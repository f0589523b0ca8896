package proxy

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/directive"
)

// assignment returns the plan that an operator has assigned to the key of the request, if l has it. It costs
// one comparison while no plan is assigned.
func (x *exchange) assignment(l *limit, k *extractedKey) (directive.Directive, bool) {
	if x.extracted.assigned == nil {
		return directive.Directive{}, false
	}
	return l.assigned(x.extracted.assigned, k.Key, k.previous, x.route.Name)
}

// assignment returns the plan that an operator has assigned to the key of t.
func (p *Proxy) assignment(t *keyTarget) (directive.Directive, bool) {
	set := p.directives.Load()
	if !set.HasPlans() || t.overridden {
		return directive.Directive{}, false
	}
	return t.limit.assigned(set, t.key, t.previous, append([]string{t.limit.Route}, t.limit.Routes...)...)
}

// assigned returns the plan of a key, under either secret, if l has it.
func (l *limit) assigned(set *directive.Set, current, previous limiter.Key, routes ...string) (directive.Directive, bool) {
	now := time.Now()
	for _, k := range [...]limiter.Key{current, previous} {
		var text [2 * len(k)]byte
		hex.Encode(text[:], k[:])
		if d, found := set.Plan(l.Key.Name, text[:], now, routes...); found && l.plans[d.Plan] != nil {
			return d, true
		}
	}
	return directive.Directive{}, false
}

// assign sets the plan that an operator has assigned.
func (t *keyTarget) assign(d directive.Directive) {
	t.setPlan(d.Plan)
	t.planUntil = d.Until
	if t.reason != "" {
		t.reason += ", until " + d.Until.UTC().Format(time.RFC3339)
	}
}

// Assignments returns the directives that assign the plan of c to its key, or are to be ended: one for each key of
// limits. A key that has overridden rates keeps them. Errors wrap ErrKeyQuery.
func (p *Proxy) Assignments(c KeyChange) (all []directive.Directive, err error) {
	if c.Limit != "" {
		return nil, fmt.Errorf("%w: a plan is assigned on all or one of the routes, not under a limit; leave the limit out", ErrKeyQuery)
	}
	targets, err := p.findTargets(p.current.Load(), c.KeyQuery)
	if err != nil {
		return nil, err
	}
	var names []string
	overridden := false
	for _, t := range targets {
		switch {
		case t.derived:
		case c.Action == KeyUnassign:
			all = append(all, t.assignments(c)...)
		case t.limit.plans[c.Plan] != nil && t.overridden:
			overridden = true
		case t.limit.plans[c.Plan] != nil:
			all = append(all, t.assignments(c)...)
		default:
			names = slices.AppendSeq(names, maps.Keys(t.limit.plans))
		}
	}
	slices.SortFunc(all, func(a, b directive.Directive) int { return strings.Compare(a.Name(), b.Name()) })
	all = slices.CompactFunc(all, func(a, b directive.Directive) bool { return a.Name() == b.Name() })
	switch {
	case len(all) > 0:
		return all, nil
	case overridden:
		return nil, fmt.Errorf("%w: the key is under overrides, which take precedence; remove it there", ErrKeyQuery)
	case len(names) > 0:
		return nil, fmt.Errorf("%w: no limit on this key has the plan %q; write one of %s", ErrKeyQuery, c.Plan, joinNames(names))
	}
	return nil, fmt.Errorf("%w: no limit that counts by this key alone has plans; name the key of one that has", ErrKeyQuery)
}

// assignments returns the directive that assigns the plan of c to the key of t. What is to be ended may be under the
// previous secret.
func (t *keyTarget) assignments(c KeyChange) (all []directive.Directive) {
	keys := []limiter.Key{t.key}
	if t.rotates && c.Action == KeyUnassign {
		keys = append(keys, t.previous)
	}
	for _, k := range keys {
		all = append(all, directive.Directive{Plan: c.Plan, Route: c.Route, Reason: c.Reason, Key: directive.Key{Name: t.limit.Key.Name, Hash: k.String(), Masked: t.logged}})
	}
	return all
}

// NameKey returns the hash in the log, and the id, of the key of an assignment.
func (p *Proxy) NameKey(d directive.Directive) (hash, id string) {
	var k limiter.Key
	if _, err := hex.Decode(k[:], []byte(d.Key.Hash)); err != nil {
		return "", "" // no node has written it
	}
	r := p.current.Load().redact
	return r.KeyHash(k), r.KeyID(k)
}
