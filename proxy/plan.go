package proxy

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// A keyPlan is the plan of the request's key under a limit.
type keyPlan struct {
	of   *limit.Limit
	name string      // as it was read; empty if the key has none
	plan *limit.Plan // nil if the limit has none of this name, and its own rates apply; or not looked for yet

	until time.Time // when it ends, if an operator has assigned it
}

// lookUp looks the last extracted key up in the lists of the limits on it.
func (x *exchange) lookUp(by *key.Spec) {
	for _, l := range x.route.Active {
		list := l.PlanList()
		if l.Key != by || list == nil {
			continue
		}
		if name := list.Name(&x.extracted.value); name != "" {
			x.extracted.found = append(x.extracted.found, keyPlan{of: l, name: name})
		}
	}
}

// windows returns the windows of l for a key: those that limit.windowsOf returns, or those of its plan. A plan without a
// limit has none. Another plan, or other rates, keep what is used: a count belongs to the name of its window.
func (g *generation) windows(x *exchange, l *limit.Limit, k *limit.Key) ([]*limit.Window, error) {
	if windows, found, err := l.WindowsOf(k.Key, x.in.asked.Rate); found {
		return windows, err
	}
	p, err := g.plan(x, l, k)
	if err != nil || p == nil {
		return l.Windows, err
	}
	return p.Windows, nil
}

// plan returns the plan of a key under l, nil if it has none that l has. That which an operator has assigned
// takes precedence.
func (g *generation) plan(x *exchange, l *limit.Limit, k *limit.Key) (*limit.Plan, error) {
	if i := slices.IndexFunc(x.extracted.plans, func(p keyPlan) bool { return p.of == l }); i >= 0 {
		return x.extracted.plans[i].plan, nil // the limit was evaluated before the body was read
	}
	d, found := x.assignment(l, k)
	if !found {
		var err error
		if d.Plan, err = g.planName(x, l); err != nil {
			return nil, err
		}
	}
	p := l.ByPlan[d.Plan]
	x.extracted.plans = append(x.extracted.plans, keyPlan{l, d.Plan, p, d.Until})
	return p, nil
}

// planName returns the name of the plan that the source of l has, "" if it has none. A client that is
// not a trusted proxy has none in a header field. A field that is repeated is an error: a proxy may have
// added its own to that of a client.
func (g *generation) planName(x *exchange, l *limit.Limit) (string, error) {
	if name, found := x.extracted.logged.line.plan(l); found {
		return name, nil
	}
	by := l.PlanKey()
	switch {
	case l.PlanList() != nil:
		i := slices.IndexFunc(x.extracted.found, func(f keyPlan) bool { return f.of == l })
		if i < 0 {
			return "", nil
		}
		return x.extracted.found[i].name, nil
	case by == nil || by.From.Source.IsField() && !x.client.trustedPeer:
		return "", nil
	}
	read, err := g.key(x, by)
	if errors.Is(err, key.ErrNoVerificationKeys) {
		return "", nil
	}
	if err != nil || read.Skip {
		return "", err
	}
	return read.Text, nil
}

// planOf returns the name of the plan whose rates apply to the request's key under l, "" if the limit's
// own rates do.
func (x *exchange) planOf(l *limit.Limit) string {
	for _, p := range x.extracted.plans {
		if p.of == l && p.plan != nil {
			return p.plan.Name
		}
	}
	return ""
}

// planFrom says where the plan of the request's key under l comes from, "" if the limit's own rates apply.
func (x *exchange) planFrom(l *limit.Limit) string {
	i := slices.IndexFunc(x.extracted.plans, func(p keyPlan) bool { return p.of == l && p.plan != nil })
	switch {
	case i < 0:
		return ""
	case !x.extracted.plans[i].until.IsZero():
		return "assigned by an operator until " + x.extracted.plans[i].until.UTC().Format(time.RFC3339)
	case l.PlanList() != nil:
		return "its list"
	case l.PlanKey() == nil:
		return "the log"
	}
	return l.PlanKey().From.String()
}

// unlimited returns the limits that do not apply because of a plan.
func (x *exchange) unlimited() (names []string) {
	for _, p := range x.extracted.plans {
		if p.plan != nil && len(p.plan.Windows) == 0 {
			names = append(names, p.of.Name)
		}
	}
	return names
}

// assignment returns the plan that an operator has assigned to the key of the request, if l has it. It costs
// one comparison while no plan is assigned.
func (x *exchange) assignment(l *limit.Limit, k *limit.Key) (directive.Directive, bool) {
	if x.extracted.assigned == nil {
		return directive.Directive{}, false
	}
	return assignedPlan(l, x.extracted.assigned, [2]limiter.Key{k.Key, k.Previous}, x.route.Name)
}

// assignment returns the plan that an operator has assigned to the key of t.
func (p *Proxy) assignment(t *keyTarget) (directive.Directive, bool) {
	set := p.directives.Load()
	if !set.HasPlans() || t.overridden {
		return directive.Directive{}, false
	}
	return assignedPlan(t.limit, set, [2]limiter.Key{t.key, t.previous}, append([]string{t.limit.Route}, t.limit.Routes...)...)
}

// assignedPlan returns the plan of a key, under either secret, if l has it.
func assignedPlan(l *limit.Limit, set *directive.Set, keys [2]limiter.Key, routes ...string) (directive.Directive, bool) {
	now := time.Now()
	for _, k := range keys {
		var text [2 * len(k)]byte
		hex.Encode(text[:], k[:])
		if d, found := set.Plan(l.Key.Name, text[:], now, routes...); found && l.ByPlan[d.Plan] != nil {
			return d, true
		}
	}
	return directive.Directive{}, false
}

// assign sets the plan that an operator has assigned.
func (t *keyTarget) assign(d directive.Directive) {
	t.setPlan(d.Plan)
	t.standing.PlanUntil = d.Until
	if t.standing.Unknown != "" {
		t.standing.Unknown += ", until " + d.Until.UTC().Format(time.RFC3339)
	}
}

// Assignments returns the directives that assign the plan of c to its key, or are to be ended: one for each key of
// limits. A key that has overridden rates keeps them. Errors wrap ErrKeyQuery.
func (p *Proxy) Assignments(c view.KeyChange) (all []directive.Directive, err error) {
	if c.Limit != "" {
		return nil, fmt.Errorf("%w: a plan is assigned on all or one of the routes, not under a limit; leave the limit out", view.ErrKeyQuery)
	}
	targets, err := p.findTargets(p.current.Load(), c.KeyQuery)
	if err != nil {
		return nil, err
	}
	var names []string
	overridden := false
	for _, t := range targets {
		switch {
		case t.standing.Derived:
		case c.Action == view.KeyUnassign:
			all = append(all, t.assignments(c)...)
		case t.limit.ByPlan[c.Plan] != nil && t.overridden:
			overridden = true
		case t.limit.ByPlan[c.Plan] != nil:
			all = append(all, t.assignments(c)...)
		default:
			names = slices.AppendSeq(names, maps.Keys(t.limit.ByPlan))
		}
	}
	slices.SortFunc(all, func(a, b directive.Directive) int { return strings.Compare(a.Name(), b.Name()) })
	all = slices.CompactFunc(all, func(a, b directive.Directive) bool { return a.Name() == b.Name() })
	switch {
	case len(all) > 0:
		return all, nil
	case overridden:
		return nil, fmt.Errorf("%w: the key is under overrides, which take precedence; remove it there", view.ErrKeyQuery)
	case len(names) > 0:
		return nil, fmt.Errorf("%w: no limit on this key has the plan %q; write one of %s", view.ErrKeyQuery, c.Plan, joinNames(names))
	}
	return nil, fmt.Errorf("%w: no limit that counts by this key alone has plans; name the key of one that has", view.ErrKeyQuery)
}

// assignments returns the directive that assigns the plan of c to the key of t. What is to be ended may be under the
// previous secret.
func (t *keyTarget) assignments(c view.KeyChange) []directive.Directive {
	keys := []limiter.Key{t.key}
	if t.rotates && c.Action == view.KeyUnassign {
		keys = append(keys, t.previous)
	}
	return view.Each(keys, func(k limiter.Key) directive.Directive {
		return directive.Directive{Plan: c.Plan, Route: c.Route, Reason: c.Reason, Key: directive.Key{Name: t.limit.Key.Name, Hash: k.String(), Masked: t.standing.Logged}}
	})
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
