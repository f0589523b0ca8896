package proxy

import (
	"cmp"
	"context"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// Explain reports what would be done with a request. It runs the stages that serve requests without
// side effects: nothing is taken, counted, remembered, logged or forwarded, and the store is only
// peeked. It returns an error that wraps ErrExplain if r is not a valid request.
func (p *Proxy) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	x, err := r.exchange()
	if err != nil {
		return Explanation{}, err
	}
	g := p.acquire(0)
	defer g.release(0)
	x.generation, x.in.scheme = g, cmp.Or(x.in.scheme, g.usualScheme())
	e := &explainer{ctx: ctx, proxy: p, generation: g, x: x}
	e.Others, e.Keys, e.Lists, e.Limits = []ExplainedOther{}, []ExplainedKey{}, []ExplainedList{}, []ExplainedLimit{}
	e.Generation = g.number
	e.Method, e.Scheme = x.request.Method, x.in.scheme

	refusal := e.runStages()
	e.Host, e.Path, e.Client = x.request.Host, x.request.Path, x.client.addr.String()
	if x.route != nil {
		decided := x.decision // the calls below must not change the response
		decided.Outcomes = append([]limiter.Outcome(nil), decided.Outcomes...)
		claims := x.claims.clone()
		e.explainKeys()
		e.explainLists()
		e.explainLimits()
		e.explainReturns()
		x.decision, x.claims = decided, claims
	}
	e.end(refusal)
	return e.Explanation, nil
}

// An explainer runs one request through the stages. It is the downstream of the request.
type explainer struct {
	ctx        context.Context //nolint:containedctx // of one call of Explain
	proxy      *Proxy
	generation *generation
	x          *exchange
	Explanation
}

// runStages runs the stages in order. It returns the error with which a stage refuses the request;
// later stages are skipped.
func (e *explainer) runStages() error {
	g, x := e.generation, e.x
	var refusal error
	stages := []struct {
		name string
		run  func() (detail string, err error)
	}{
		{"client address", func() (string, error) {
			g.clientIP.resolve(x)
			if x.client.trustedPeer {
				return "the peer is a trusted proxy", nil
			}
			return "", nil
		}},
		{"normalize", func() (string, error) {
			if err := normalize(x); err != nil {
				return "", err
			}
			return "", g.requireHTTPS(x)
		}},
		{"match route", e.match},
		{"check header", func() (string, error) {
			return "", cmp.Or(g.checkConfusable(x), g.checkConnection(x), x.checkBodySize())
		}},
		{"check lists", func() (string, error) { return "", g.checkLists(x, x.route.lists) }},
		{"check limits before the body", e.early},
		{"check lists of body keys", func() (string, error) { return "", g.checkLists(x, x.route.bodyLists) }},
		{"read keys", func() (string, error) { return "", g.extract(x) }},
		{"check new keys", e.newKeys},
		{"idempotency key", func() (string, error) { return "", g.idempotency(x) }},
		{"check limits", e.admit},
	}
	for _, s := range stages {
		explained := ExplainedStage{Name: s.name, Result: StageSkipped}
		if refusal == nil {
			explained.Result = StagePassed
			if explained.Detail, refusal = s.run(); refusal != nil {
				explained.Result, explained.Detail = StageRefused, refusal.Error()
			}
		}
		e.Stages = append(e.Stages, explained)
	}
	return refusal
}

// end adds the response or the forwarded request to the explanation.
func (e *explainer) end(refusal error) {
	x := e.x
	e.Decision.Store = string(e.generation.config.Store)
	e.Decision.Slots = e.generation.slots(x.claims.claims)
	if refusal != nil {
		e.respond(e.generation.refuse(x, refusal))
		return
	}
	if x.route.onlyDecided() {
		e.respond(x.allowedResponse())
		return
	}
	e.generation.forward(x, e)
}

// slots returns how many cluster slots hold the keys of claims, 1 if all are decided in one script.
func (g *generation) slots(claims []limiter.Claim) int {
	apart := g.config.Store == config.StoreRedis && g.config.Redis.Mode == config.RedisCluster
	places := map[string]bool{}
	for _, c := range claims {
		switch {
		case c.RedissonName != "" && g.config.Store == config.StoreRedis:
			places[c.RedissonName] = true
		case apart:
			places[c.Key.String()] = true
		default:
			places[""] = true
		}
	}
	return max(len(places), 1)
}

// respond implements downstream.
func (e *explainer) respond(a respond.Response) {
	a = e.x.forGRPC(a)
	explained := &ExplainedAnswer{Status: a.Status, Header: map[string][]string{}, Body: string(a.Body)}
	for _, f := range a.Fields {
		explained.Header[f.Name] = append(explained.Header[f.Name], f.Value)
	}
	if e.x.err != nil {
		explained.Why = e.x.err.Error()
	}
	e.Answer, e.Upstream = explained, nil
}

// beforeEnd implements downstream. There is nothing to release.
func (e *explainer) beforeEnd(func(flush func())) {}

// forward implements downstream. Nothing is sent.
func (e *explainer) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	return e.explainForward(p, t)
}
