package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// Explain says what would be done with a request, by the stages that serve requests,
// and does none of it: nothing is taken, counted, learnt, logged or forwarded. Of a
// store it asks only what the limits would say. Errors wrap ErrExplain: what was asked
// about is no request.
func (p *Proxy) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	x, err := r.exchange()
	if err != nil {
		return Explanation{}, err
	}
	g := p.enter()
	defer g.leave()
	x.generation, x.redact = g, &g.redact
	e := &explainer{ctx: ctx, proxy: p, generation: g, x: x}
	e.Others, e.Keys, e.Lists, e.Limits = []ExplainedOther{}, []ExplainedKey{}, []ExplainedList{}, []ExplainedLimit{}
	e.Generation = g.number
	e.Method, e.Scheme = x.method, x.scheme

	refusal := e.walk()
	e.Host, e.Path, e.Client = x.host, x.path, x.client.String()
	if x.route != nil {
		decided := x.decision // what is asked below must not change the answer
		decided.Outcomes = append([]limiter.Outcome(nil), decided.Outcomes...)
		claims := append([]limiter.Claim(nil), x.claims...)
		windows := append([]int(nil), x.windows...)
		e.explainKeys()
		e.explainLists()
		e.explainLimits()
		x.decision, x.claims, x.windows = decided, claims, windows
	}
	e.end(refusal)
	return e.Explanation, nil
}

// An explainer takes one request through the stages. It is the request's downstream.
type explainer struct {
	ctx        context.Context //nolint:containedctx // of one call of Explain
	proxy      *Proxy
	generation *generation
	x          *exchange
	Explanation
}

// walk takes the request through the stages in their order. It returns why a stage
// refuses it; those after that one are skipped.
func (e *explainer) walk() error {
	g, x := e.generation, e.x
	var refusal error
	stages := []struct {
		name string
		run  func() (detail string, err error)
	}{
		{"address", func() (string, error) {
			g.address.address(x)
			if x.trusted {
				return "the peer is a trusted proxy", nil
			}
			return "", nil
		}},
		{"tidy", func() (string, error) { return "", tidy(x) }},
		{"match", e.match},
		{"fields", func() (string, error) { return "", cmp.Or(g.unconfused(x), g.connection(x), x.fits()) }},
		{"lists", func() (string, error) { return "", g.screen(x, x.route.lists) }},
		{"early", e.early},
		{"lists in the body", func() (string, error) { return "", g.screen(x, x.route.bodyScreens) }},
		{"extract", func() (string, error) { return "", g.extract(x) }},
		{"new keys", e.newKeys},
		{"idempotency", func() (string, error) { return "", g.idempotency(x) }},
		{"admit", e.admit},
	}
	for _, s := range stages {
		said := ExplainedStage{Name: s.name, Result: StageSkipped}
		if refusal == nil {
			said.Result = StagePassed
			if said.Detail, refusal = s.run(); refusal != nil {
				said.Result, said.Detail = StageRefused, refusal.Error()
			}
		}
		e.Stages = append(e.Stages, said)
	}
	return refusal
}

// early is Proxy.early that counts nothing.
func (e *explainer) early() (string, error) {
	x, r := e.x, e.x.route
	if len(r.early) == 0 || x.content != nil || x.length == 0 || x.bypasses() ||
		r.idempotency != nil && len(x.Header(r.idempotency.header)) > 0 {
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
	x.claims, x.windows, x.rotates = x.claims[:0], x.windows[:0], false
	return "", nil // a store that cannot tell leaves it to admit
}

// newKeys is Proxy.newKeys that learns nothing.
func (e *explainer) newKeys() (string, error) {
	x, n := e.x, &e.x.route.newKeys
	if len(n.of) == 0 || x.exempt {
		return "", nil
	}
	var keys []limiter.Key
	for _, k := range x.keys {
		if !k.skip && n.looks(k.by) {
			keys = append(keys, k.bare)
		}
	}
	a := e.proxy.guard.Peek(n.rate, limiter.KeyOf(x.route.name, x.network.String()), keys...)
	switch {
	case !a.New:
		return "no key is new", nil
	case !a.Refused:
		return "a key is new; the client may send one", nil
	case n.mode == config.Shadow:
		return "too many new keys from this client (shadow)", nil
	}
	x.decision = limiter.Decision{Wait: a.Wait, Outcomes: x.decision.Outcomes[:0]}
	return "", errNewKeys
}

// admit is admitter.admit that takes nothing.
func (e *explainer) admit() (string, error) {
	x := e.x
	e.Decision.Asked, e.Decision.Allowed = len(x.claims) > 0, true
	if len(x.claims) == 0 {
		e.Decision.Reason = x.notAsked()
		return e.Decision.Reason, nil
	}
	if repeat, err := e.repeats(); err != nil || repeat {
		e.Decision.Repeat = repeat
		return "it repeats a request that was counted, and does not count", err
	}
	err := e.ask()
	switch {
	case errors.Is(err, errRefused) && x.worthWaiting():
		detail := "it waits " + x.decision.Wait.String() + " for its turn, if nobody is before it"
		e.Decision.Reason = detail
		return detail, nil
	case err != nil && !errors.Is(err, errRefused):
		e.Decision.Asked = false
		e.Decision.Reason = "the store cannot be asked; each limit goes by its on_store_failure"
		for i := range x.claims {
			if x.window(i).of.onFailure == config.Deny {
				e.Decision.Allowed = false
				return "", errUndecided
			}
		}
		x.claims, x.windows = x.claims[:0], x.windows[:0]
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
	if err := a.store.Peek(ctx, x.claims, &x.decision); err != nil {
		return fmt.Errorf("ask the limits: %w", err)
	}
	if x.rotates {
		x.fold()
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
	if len(x.idempotency) == 0 {
		return false, nil
	}
	ctx, cancel := a.bound(e.ctx)
	defer cancel()
	var d limiter.Decision
	if err := a.store.Peek(ctx, x.idempotency, &d); err != nil || d.Allowed {
		return false, nil //nolint:nilerr // a store that cannot tell is met again by admit
	}
	free := []limiter.Claim{{Limit: &x.route.idempotency.repeats, Key: x.idempotency[0].Key, Cost: 1, Source: x.source}}
	if err := a.store.Peek(ctx, free, &d); err != nil || !d.Allowed {
		return false, nil //nolint:nilerr // as above
	}
	x.claims, x.windows = x.claims[:0], x.windows[:0]
	return true, nil
}

// worthWaiting reports whether each limit that refuses lets requests wait that long.
func (x *exchange) worthWaiting() bool {
	for i, o := range x.decision.Outcomes {
		if !o.Allowed && o.Wait > x.window(i).of.wait {
			return false
		}
	}
	return true
}

// notAsked is why no limit that refuses is asked about x.
func (x *exchange) notAsked() string {
	switch {
	case x.list != nil && x.list.Action == config.Bypass:
		return "the list " + x.list.Name + " lets it pass"
	case x.exempt:
		return "it is a browser's preflight"
	case len(x.route.limits) == 0:
		return "the route has no limits"
	}
	return "no limit that is enforced applies"
}

// end is what comes after the stages: the answer, or what is forwarded.
func (e *explainer) end(refusal error) {
	x := e.x
	e.Decision.Store = string(e.generation.config.Store)
	e.Decision.Slots = e.generation.slots(x.claims)
	if refusal != nil {
		e.answer(e.generation.refuse(x, refusal))
		return
	}
	e.generation.forward(x, e)
}

// slots is how many slots of a cluster hold the keys of claims; 1 where all are asked
// in one script.
func (g *generation) slots(claims []limiter.Claim) int {
	apart := g.config.Store == config.StoreRedis && g.config.Redis.Mode == config.RedisCluster
	places := map[string]bool{}
	for _, c := range claims {
		switch {
		case c.Redisson != "" && g.config.Store == config.StoreRedis:
			places[c.Redisson] = true
		case apart:
			places[c.Key.String()] = true
		default:
			places[""] = true
		}
	}
	return max(len(places), 1)
}

// answer implements downstream.
func (e *explainer) answer(a respond.Answer) {
	said := &ExplainedAnswer{Status: a.Status, Header: map[string][]string{}, Body: string(a.Body)}
	for _, f := range a.Fields {
		said.Header[f.Name] = append(said.Header[f.Name], f.Value)
	}
	if e.x.err != nil {
		said.Why = e.x.err.Error()
	}
	e.Answer, e.Upstream = said, nil
}

// beforeEnd implements downstream: nothing is held.
func (e *explainer) beforeEnd(func(flush func())) {}

// forward implements downstream: nothing is sent.
func (e *explainer) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	return e.outgoing(p, t)
}
