package proxy

import (
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// findTargets returns the limits selected by q. A key that is named by its id is completed by what this
// node remembers of it.
func (p *Proxy) findTargets(g *generation, q KeyQuery) ([]keyTarget, error) {
	targets, err := g.findTargets(q, p.keyByHash)
	for i := range targets {
		if t := &targets[i]; t.byID {
			p.complete(g, t)
		}
	}
	return targets, err
}

// complete adds to t, which was named by an id, what the value of the key determines: the masked text, and
// the rates of an override. The value is that of a recent request on this node; if there was none, or if
// it was too long to be kept, t stays as the id alone determines it.
func (p *Proxy) complete(g *generation, t *keyTarget) {
	l, found := p.labelOf(t)
	if !found {
		return
	}
	leaves, texts := t.spec.Components(), strings.Split(string(l.text[:l.size]), "\x00")
	t.masked, t.logged = l.masked(g.display(), t.spec.Shapes()), l.masked(g.logDisplay(), t.spec.Shapes())
	given := key.Input{Texts: map[string]string{}, IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for i := range min(len(leaves), len(texts)) {
		given.Texts[leaves[i].Name] = texts[i]
	}
	same := keyTarget{route: t.route, limit: t.limit, windows: t.limit.windows}
	if found, err := g.matchValue(&same, given); found && err == nil && same.key == t.key {
		*t = same
	}
}

// labelOf returns the texts of the key of t, if a recent request on this node had it.
func (p *Proxy) labelOf(t *keyTarget) (label, bool) {
	o := p.shared.observer
	if top := t.limit.top; top != nil {
		minute := o.minute(time.Now())
		for _, h := range []limiter.HeavyHitters[limiter.Key, label]{top.refused.Last(minute, TopSlices), top.requests.Last(minute, TopSlices)} {
			for _, k := range h.Keys {
				if k.Key == t.key {
					return k.Value, true
				}
			}
		}
	}
	return o.recent.labelOf(t.key)
}

func (r *recentRing) labelOf(k limiter.Key) (label, bool) {
	for i := range r.shards {
		set := &r.shards[i]
		set.mu.Lock()
		for _, part := range [...]*recentPart{&set.refused, &set.allowed} {
			for j := range part.records {
				for _, own := range part.records[j].keys[:part.records[j].numKeys] {
					if own.key == k {
						set.mu.Unlock()
						return own.label, true
					}
				}
			}
		}
		set.mu.Unlock()
	}
	return label{}, false
}
