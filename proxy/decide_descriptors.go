package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
)

// A call is the state of deciding about several descriptors. Each that a route matches has an
// exchange of its own, which is recorded as a request is.
type call struct {
	proxy     *Proxy
	question  *DescriptorQuestion
	exchanges []*exchange // of the descriptors that a route matches
	all       *exchange   // with the claims of all others
	failed    *exchange   // whose claims could not be made, or nil
}

// DecideDescriptors decides about the descriptors of a call in one step, and calls answer with the
// result. A descriptor that no route matches is allowed. Refund, records and the deadline are as in Decide.
func (p *Proxy) DecideDescriptors(ctx context.Context, q *DescriptorQuestion, answer func(*DescriptorAnswer)) {
	c := &call{proxy: p, question: q}
	own := p.shared.stripes.Own()
	g := p.acquire(own)
	err := c.resolve(ctx, g)
	if err == nil {
		err = c.check(ctx)
	}
	if err == nil && c.all != nil {
		err = c.checkNumber()
	}
	if err == nil && c.all != nil {
		err = p.admitter.Admit(ctx, &c.all.Admission)
		c.share(ctx)
		c.countSends()
	}
	a := &DescriptorAnswer{Answer: Answer{Allowed: err == nil}}
	c.answer(g, a, err)
	answer(a)
	c.end(ctx, a)
	g.release(own)
}

// resolve makes the claims of all descriptors.
func (c *call) resolve(ctx context.Context, g *generation) error {
	for i := range c.question.Descriptors {
		d := &c.question.Descriptors[i]
		r, found := g.descriptors.Find(c.question.Domain, d.Descriptor)
		if !found {
			continue
		}
		takes := func(l *limit.Limit) bool { return l.Unit(d.Rate.Window) != nil }
		if d.Rate != nil && !slices.ContainsFunc(r.Active, takes) {
			c.proxy.ignoredRate.Do(func() { c.proxy.log.Warn().Str("route", r.Name).Msg("limit of a descriptor ignored") })
		}
		x := c.begin(g, r, d)
		x.in.number = i
		c.exchanges = append(c.exchanges, x)
		err := c.proxy.checkDirectives(x)
		if err == nil {
			err = c.proxy.resolveClaims(ctx, x)
		}
		if err == nil {
			err = x.setCost(max(1, d.Hits))
		}
		if err == nil && !x.isCheck() {
			err = c.add(g, x)
		}
		if err != nil {
			c.failed = x
			return err
		}
	}
	return nil
}

// isCheck reports whether the descriptor of x takes nothing.
func (x *exchange) isCheck() bool { return x.in.asked.Hits == 0 }

// check decides about the descriptors that take nothing.
func (c *call) check(ctx context.Context) (err error) {
	for _, x := range c.exchanges {
		if !x.isCheck() {
			continue
		}
		if failed := c.proxy.admitter.Check(ctx, &x.Admission); failed != nil {
			if err = cmp.Or(err, failed); !x.Decided {
				c.failed = x
			}
		}
	}
	return err
}

// begin returns an exchange for a descriptor that r matches.
func (c *call) begin(g *generation, r *route, d *AskedDescriptor) *exchange {
	x := c.proxy.exchanges.Get().(*exchange)
	c.proxy.recorder.start(x)
	x.Stripe = c.proxy.shared.stripes.Own()
	x.enteredBy = x.Stripe
	g.users.Add(x.Stripe, 1)
	x.generation, x.Admitter, x.Due = g, c.proxy.admitter, c.question.Deadline
	x.setRoute(r)
	x.in.listener, x.in.scheme, x.in.header, x.in.asked = c.question.Listener, "http", noFields{}, *d
	x.request.Method, x.request.Host, x.request.Proto = c.question.Method, c.question.Domain, "HTTP/2.0"
	x.request.RequestTarget, x.request.Path = c.question.Path, c.question.Path
	c.proxy.recorder.setID(x)
	return x
}

// setCost sets the cost of the claims of x. A distinct limit counts its value, whatever that costs.
func (x *exchange) setCost(hits int64) error {
	if w := x.Claims.SetCost(hits); w != nil {
		return limit.Exceeds(w, hits)
	}
	for w := x.Shadow.Claims.SetCost(hits); w != nil; w = x.Shadow.Claims.SetCost(hits) {
		x.wouldRefuse(&x.Shadow.Claims, w.Of)
	}
	return nil
}

// wouldRefuse records that a limit in shadow mode would refuse x, whatever is used of it, and removes its claims.
func (x *exchange) wouldRefuse(from *limit.ClaimSet, of *limit.Limit) {
	from.Remove(of)
	x.Shadow.Errors = append(x.Shadow.Errors, of)
}

// add adds the claims of x to those that are decided together. The same key under the same limit is one
// claim, with the cost of both.
func (c *call) add(g *generation, x *exchange) error {
	if c.all == nil {
		c.all = c.begin(g, &route{Route: limit.Route{Route: x.route.Route.Route}, reads: x.route.reads}, &AskedDescriptor{})
		c.all.KeyNamer, c.all.IsShared = c, true
	}
	all := c.all
	for i := range x.Claims {
		if err := all.Claims.Merge(x.Claims.Window(i), &x.Claims[i]); err != nil {
			return err
		}
	}
	for i := range x.Shadow.Claims {
		if w := x.Shadow.Claims.Window(i); all.Shadow.Claims.Merge(w, &x.Shadow.Claims[i]) != nil {
			x.wouldRefuse(&all.Shadow.Claims, w.Of)
		}
	}
	// no limiter of Redisson counts a call twice
	all.Shadow.Claims = slices.DeleteFunc(all.Shadow.Claims, func(s limiter.Claim) bool { return all.Claims.Index(&s) >= 0 })
	all.Shadow.Errors = append(all.Shadow.Errors, x.Shadow.Errors...)
	return nil
}

// LogKey implements the keyNamer of an admission.
func (c *call) LogKey(k limiter.Key) (hash, masked string) {
	for _, x := range c.exchanges {
		if hash, masked = x.LogKey(k); masked != "" {
			break
		}
	}
	return hash, masked
}

// share gives each exchange its part of the decision, and does what follows that.
func (c *call) share(ctx context.Context) {
	all := &c.all.Admission
	for _, x := range c.exchanges {
		if x.isCheck() {
			continue
		}
		x.Decided, x.Fallback, x.Err = all.Decided, all.Fallback, all.Err
		x.Decision.Allowed, x.Decision.At, x.Decision.Permit = true, all.Decision.At, all.Decision.Permit
		own := x.Claims[:0]
		for i := range x.Claims {
			at := all.Claims.Index(&x.Claims[i])
			if at < 0 || at >= len(all.Decision.Outcomes) {
				continue // a limit that allows while the store is unreachable
			}
			own = append(own, x.Claims[i])
			o := all.Decision.Outcomes[at]
			x.Decision.Outcomes = append(x.Decision.Outcomes, o)
			if !o.Allowed {
				x.Decision.Allowed = false
				x.Decision.Wait = max(x.Decision.Wait, o.Wait)
			}
		}
		x.Claims = own
		x.MergePrevious()
		c.proxy.admitter.Share(ctx, &x.Admission, all)
		x.takeOf(all)
	}
}

// countSends counts, for limits with return_on, what each descriptor has taken, and what it would not have in shadow mode.
func (c *call) countSends() {
	for _, x := range c.exchanges {
		if x.Err != nil {
			continue
		}
		for i := range x.TakenPermits {
			t := &x.TakenPermits[i]
			if of := t.Claims.Window(0).Of; !t.Permit.IsZero() {
				x.Admitter.CountTaken(&x.Admission, t.Claims)
			} else if of.ShadowNotes != nil {
				x.Admitter.NoteShadowRefusal(context.Background(), &x.Admission, of, &t.Claims[0])
			}
		}
	}
}

// takeOf gives x its part of the permits in all. Each claim is of one exchange: the first one that has
// it, as it is one claim there.
func (x *exchange) takeOf(all *limit.Admission) {
	for _, t := range all.TakenPermits {
		part := limit.TakenPermit{Store: t.Store, Permit: t.Permit}
		for i := range t.Claims {
			c := &t.Claims[i]
			if c.Cost == 0 || x.Claims.Index(c) < 0 && x.Shadow.Claims.Index(c) < 0 {
				continue
			}
			part.Claims = append(part.Claims, *c)
			c.Cost = 0 // given
		}
		if len(part.Claims) > 0 {
			x.TakenPermits = append(x.TakenPermits, part)
		}
	}
}

// answer completes a. The response is that of the first descriptor that is refused, or of the first one that has limits.
func (c *call) answer(g *generation, a *DescriptorAnswer, err error) {
	a.Response.Status = http.StatusOK
	a.Statuses = make([]DescriptorStatus, len(c.question.Descriptors))
	speaker := c.failed
	for _, x := range c.exchanges {
		s := x.status()
		s.Refused = x == c.failed || x.IsRefused()
		a.Statuses[x.in.number] = s
		if speaker == nil || !a.Allowed && c.failed == nil && !speaker.IsRefused() && x.IsRefused() {
			speaker = x
		}
		if a.Allowed {
			x.outcome.known = true
			a.Upstream = append(a.Upstream, x.upstreamFields()...)
			if pending := x.Pending(c.proxy.shared.pseudonym, x.extracted.keys); pending != nil && !x.isCheck() {
				a.Pendings, a.At = append(a.Pendings, pending), cmp.Or(x.Decision.At, x.began)
			}
		}
	}
	switch {
	case speaker == nil:
	case err != nil:
		if c.failed = speaker; !slices.ContainsFunc(a.Statuses, func(s DescriptorStatus) bool { return s.Refused }) {
			a.Statuses[speaker.in.number].Refused = true // nothing is decided
		}
		a.Response = g.refuse(speaker, err)
	default:
		a.Response = speaker.withRateLimits(respond.Response{Status: 200})
		if c.all != nil {
			c.proxy.admitter.Hold(&c.all.Admission, c.question.Hold)
		}
	}
	if speaker != nil {
		a.RequestID = speaker.id
	}
}

// end records the descriptors: all of an allowed call that take something, and of a refused one those that are refused.
func (c *call) end(ctx context.Context, a *DescriptorAnswer) {
	for _, x := range c.exchanges {
		if (!a.Allowed || x.isCheck()) && x != c.failed && !x.IsRefused() {
			c.proxy.leave(x)
			continue
		}
		x.response.status = http.StatusOK
		if ctx.Err() != nil && a.Allowed { // the peer has not waited
			x.giveBack()
		}
		if !a.Allowed {
			x.response.status, x.response.bytes = a.Response.Status, int64(len(a.Response.Body))
		}
		c.proxy.endDecision(ctx, x)
	}
	if c.all != nil {
		c.all.StopRenewing()
		c.proxy.leave(c.all)
	}
}

// Descriptor implements key.Request.
func (x *exchange) Descriptor(name string) string { return x.in.asked.Value(name) }
