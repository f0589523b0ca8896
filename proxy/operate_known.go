package proxy

import (
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
)

// findTargets returns the limits selected by q. A key that is named by its id is completed by what this
// node remembers of it.
func (p *Proxy) findTargets(g *generation, q KeyQuery) ([]keyTarget, error) {
	targets, err := g.findTargets(q, p.keyByHash)
	for i := range targets {
		t := &targets[i]
		if t.byID {
			p.complete(g, t)
		}
		if d, found := p.assignment(t); found {
			t.assign(d)
			continue
		}
		if t.limit.Plan != nil && t.limit.Plan.Name != nil && !t.overridden {
			p.findPlan(g, t)
		}
	}
	return targets, err
}

// findPlan sets the plan that the last request known to this node had, where each request says its plan.
func (p *Proxy) findPlan(g *generation, t *keyTarget) {
	hash := g.redact.KeyHash(t.key)
	for _, d := range p.Decisions(decisions.Query{Route: t.limit.Route, Limit: t.limit.Name, Key: hash, N: 1}) {
		for _, l := range d.Limits {
			if l.Limit == t.limit.Name && l.Hash == hash {
				t.setPlan(l.Plan)
				return
			}
		}
	}
	t.planUnknown = true
}

// complete adds to t, which was named by an id, what the value of the key determines: the masked text, and
// the rates of an override. The value is that of a recent request on this node; if there was none, or if
// it was too long to be kept, t stays as the id alone determines it.
func (p *Proxy) complete(g *generation, t *keyTarget) {
	l, found := p.shared.observer.LabelOf(t.key, t.limit.top)
	if !found {
		return
	}
	leaves, texts := t.spec.Components(), l.Texts()
	t.masked, t.logged = l.Masked(g.display(), t.spec.Shapes()), l.Masked(g.logDisplay(), t.spec.Shapes())
	given := key.Input{Texts: map[string]string{}, IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for i := range min(len(leaves), len(texts)) {
		given.Texts[leaves[i].Name] = texts[i]
	}
	same := keyTarget{limit: t.limit, windows: t.limit.windows}
	if found, err := g.matchValue(&same, given); found && err == nil && same.key == t.key {
		*t = same
	}
}
