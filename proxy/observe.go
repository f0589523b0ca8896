package proxy

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// observe records a request whose response has been written. All work that serves only the queries
// of operators is done here.
func (s *shared) observe(x *exchange) {
	o := s.observer
	result, source := outcomeOf(x), x.refusedSource(s.seed)
	if place := o.PlaceFor(x.began, result, source); place != decisions.Nowhere {
		s.record(x, place, result, source)
	}
	if !x.Decided && len(x.TakenPermits) == 0 {
		return
	}
	minute := o.Minute(x.began)
	if x.Decided {
		x.countKeys(minute)
	}
	for i := range x.TakenPermits {
		x.countShadowKey(&x.TakenPermits[i], minute)
	}
}

// record records x at a place of the observer.
func (s *shared) record(x *exchange, place decisions.Place, result decisions.Outcome, source uint64) {
	q := decisions.Request{Facts: decisions.Facts{Outcome: result}, Place: place, Began: x.began, Source: source}
	x.describe(&q)
	s.observer.Record(&q)
}

// outcomeOf returns the outcome of x.
func outcomeOf(x *exchange) decisions.Outcome {
	switch {
	case x.IsRefused(), x.newKeys == limit.Refused:
		return decisions.RefusedByLimits
	case !x.outcome.known:
		return decisions.Rejected
	case x.Shadow.Refuses(), x.newKeys == limit.ShadowRefused:
		return decisions.ShadowRefused
	}
	return decisions.Passed
}

// describe sets what is recorded of x, except for what observe sets.
func (x *exchange) describe(q *decisions.Request) {
	q.ID, q.Method, q.Took, q.Status = x.id, x.request.Method, x.duration, x.response.status
	q.NewKeys, q.Fallback, q.Upstream, q.Listener, q.Labels = x.newKeys, x.Fallback, x.outcome.result.Target, x.in.listener, x
	if x.route != nil {
		q.Route = x.route.description
	}
	if x.Steps != nil {
		q.Challenge = x.Steps.Result
	}
	if x.list != nil {
		q.List = x.list.Name
	}
	if x.Err != nil && !x.IsRefused() {
		q.Err = x.Err
	}
	q.Flags, q.Personal = x.Flags, x.route == nil || x.route.redactsPaths()
	x.describePath(q)
	x.describeClaims(q)
}

// refusedSource returns a hash of the client and, if a limit refused x, of the key.
func (x *exchange) refusedSource(seed maphash.Seed) uint64 {
	source := uint64(x.Source)
	if source == 0 { // no claim was made
		source = maphash.Comparable(seed, x.client.network)
	}
	if i, found := x.FirstRefused(); found && x.IsRefused() && i < len(x.Claims) {
		source ^= binary.LittleEndian.Uint64(x.Claims[i].Key[:8])
	}
	return source
}

// describePath adds the path like redactedPath, as far as that is cheap: parameters that are keys are
// hidden. Other personal data is redacted when the record is read.
func (x *exchange) describePath(q *decisions.Request) {
	if x.route == nil {
		q.AddPath(x.request.Path)
		return
	}
	x.request.Without(x.route.hidesParam, q.AddPath)
}

// describeClaims adds the decision of each rate, with its key.
func (x *exchange) describeClaims(q *decisions.Request) {
	if x.Decided {
		for i := range min(len(x.Claims), len(x.Decision.Outcomes)) {
			if x.BothSecrets && x.Claims.CurrentIndex(i) != i {
				continue // one entry for both secrets
			}
			o := &x.Decision.Outcomes[i]
			q.AddClaim(&decisions.Claim{
				Window: x.Claims.Window(i).Number, Key: x.Claims[i].Key, Flags: flagsOf(o), Remaining: o.Remaining, Wait: o.Wait,
			})
		}
	}
	for i := range x.TakenPermits {
		if t := &x.TakenPermits[i]; x.ShadowLimit(t) != nil {
			x.describeShadow(q, t)
		}
	}
}

// describeShadow adds the decision of a limit in shadow mode, which has a taken permit of its own.
func (x *exchange) describeShadow(q *decisions.Request, t *limit.TakenPermit) {
	for i := range t.Claims {
		w := t.Claims.Window(i)
		if t.Claims.CurrentIndex(i) != i {
			continue // one entry for both secrets
		}
		c := decisions.Claim{Window: w.Number, Key: t.Claims[i].Key, Flags: decisions.Shadow | decisions.Allowed}
		for _, s := range x.Shadow.Refusals {
			if s.Window == w {
				c.Flags, c.Wait = decisions.Shadow, s.Wait
				if s.Banned {
					c.Flags |= decisions.Banned
				}
			}
		}
		q.AddClaim(&c)
	}
}

// flagsOf returns the flags of an outcome in enforce mode.
func flagsOf(o *limiter.Outcome) (f decisions.ClaimFlags) {
	if o.Allowed {
		f |= decisions.Allowed
	}
	if o.Banned {
		f |= decisions.Banned
	}
	if o.Unknown {
		f |= decisions.NotAsked
	}
	return f
}

// FillLabel fills l with the texts of a key of x. It implements decisions.Labeller.
func (x *exchange) FillLabel(l *decisions.Label, k limiter.Key) {
	for i := range x.extracted.keys {
		if own := &x.extracted.keys[i]; own.Key == k && !own.Skip {
			x.fillLabel(l, own)
			return
		}
	}
}

func (x *exchange) fillLabel(l *decisions.Label, k *limit.Key) {
	if k.Spec.Join == nil {
		l.AddPart(k.Text, 0)
		return
	}
	leaves := x.route.leaves[k.Spec]
	for n, leaf := range leaves {
		text := "*" // not known
		for i := range x.extracted.keys {
			if x.extracted.keys[i].Spec == leaf {
				text = x.extracted.keys[i].Text
				break
			}
		}
		if text == "*" && len(leaf.Replacements()) == 0 && leaf.Extract(x, &x.extracted.value) == nil {
			text = x.extracted.value.Text()
		}
		l.AddPart(text, len(leaves)-n-1)
	}
}

// countKeys counts the key of each limit that was evaluated, once for all of its windows and secrets.
func (x *exchange) countKeys(minute int64) {
	for of := range x.Claims.Decided(x.Decision.Outcomes) {
		if of.Unknown {
			continue
		}
		k, label := x.Claims[of.From].Key, func(l *decisions.Label) { x.fillLimitLabel(l, of.Limit) }
		of.Limit.Top.Count(x.Stripe, minute, k, label)
		if !of.Allowed {
			of.Limit.Top.CountRefused(x.Stripe, minute, k, label)
		} else if x.Decision.Allowed && of.Limit.Sends != nil {
			of.Limit.Top.CountSend(x.Stripe, minute, k, label)
		}
	}
}

// countShadowKey counts the key of a limit in shadow mode, which has a taken permit of its own.
func (x *exchange) countShadowKey(t *limit.TakenPermit, minute int64) {
	of := x.ShadowLimit(t)
	if of == nil {
		return
	}
	k, label := t.Claims[0].Key, func(l *decisions.Label) { x.fillLimitLabel(l, of) }
	of.Top.Count(x.Stripe, minute, k, label)
	if of.Sends != nil {
		of.Top.CountSend(x.Stripe, minute, k, label)
	}
	if slices.ContainsFunc(x.Shadow.Refusals, func(s limit.Refusal) bool { return s.Window.Of == of }) {
		of.Top.CountRefused(x.Stripe, minute, k, label)
	}
}

func (x *exchange) fillLimitLabel(l *decisions.Label, of *limit.Limit) {
	l.Reset()
	i := slices.IndexFunc(x.extracted.keys, func(k limit.Key) bool { return k.Spec == of.Key })
	if i >= 0 {
		x.fillLabel(l, &x.extracted.keys[i])
	}
	if i >= 0 && of.Country != nil {
		if k := limit.KeyOf(x.extracted.keys, of.Country.Key); k != nil {
			l.AddPart(k.Text, 0)
		}
	}
}

// Decisions returns recent decisions of this node, newest first; see decisions.Observer.Find.
func (p *Proxy) Decisions(q view.DecisionQuery) []view.Decided {
	return p.shared.observer.Find(q, p.current.Load().naming())
}

// Top returns the keys with most requests and most refusals on this node in the last minutes, up to
// 15. A key with more than 1/512 of the requests of a limit in a minute is always counted, and the
// error of a count, which each entry states, is at most 1/512 of the requests; with more than 25 limits
// it is a greater part (decisions.MaxCounters). decisions.MergeTops merges the results of several nodes.
func (p *Proxy) Top(q view.TopQuery) view.Top {
	q = decisions.Complete(q)
	g := p.current.Load()
	now := p.shared.observer.Minute(time.Now())
	t := view.Top{Minutes: q.Minutes, Limits: []view.TopLimit{}}
	for _, l := range g.limits {
		if q.Route != "" && !l.IsOf(q.Route) || q.Limit != "" && l.Name != q.Limit || l.Top == nil {
			continue
		}
		list := l.Top.Top(now, q, g.naming())
		list.Route, list.Limit, list.Key, list.Mode = l.Route, l.Name, l.Key.Name, string(l.Mode)
		t.Limits = append(t.Limits, list)
	}
	return t
}

// keyByHash returns the key with the given hash in the log, if a recent request on this node had it.
func (p *Proxy) keyByHash(hash string) (limiter.Key, bool) {
	g := p.current.Load()
	return p.shared.observer.KeyByHash(hash, g.naming(), g.counters())
}

// naming returns how operators see keys and paths.
func (g *generation) naming() decisions.Naming {
	return decisions.Naming{Names: &g.redact, Display: g.display()}
}

// setCounters sets the counters of the limits.
func (g *generation) setCounters(o *decisions.Observer) {
	made := map[string]*decisions.Counter{}
	for _, l := range g.limits[:min(len(g.limits), decisions.MaxCounters)] {
		made[l.ID] = o.Counter(l.ID, l.Key)
		if l.Sends != nil {
			made[l.ID] = made[l.ID].WithSends(l.LongestWindow())
			l.Country = limit.CountryOf(l, g.limits)
		}
	}
	for _, r := range g.routes {
		for _, l := range r.Active {
			l.Top = made[l.ID]
		}
	}
}

// counters returns the counters of the limits.
func (g *generation) counters() []*decisions.Counter {
	all := view.Each(g.limits, func(l *limit.Limit) *decisions.Counter { return l.Top })
	return slices.DeleteFunc(all, func(c *decisions.Counter) bool { return c == nil })
}

// describe sets the description of r for records, and the parts of its joined keys.
func (r *route) describe() {
	r.description = &decisions.Route{Name: r.Name, Windows: make([]decisions.Window, len(r.Windows))}
	for i, w := range r.Windows {
		r.description.Windows[i] = decisions.Window{
			DecisionLimit: view.DecisionLimit{Limit: w.Of.Name, Common: w.Of.IsCommon(), Rate: w.LogName, Permits: permits(w), Plan: w.Plan, Key: w.Of.Key.Name},
			AmountText:    w.Of.AmountText(), Shapes: w.Of.Key.Shapes(),
		}
		if w.Of.Key.Join == nil {
			continue
		}
		if r.leaves == nil {
			r.leaves = map[*key.Spec][]*key.Spec{}
		}
		r.leaves[w.Of.Key] = w.Of.Key.Components()
	}
}
