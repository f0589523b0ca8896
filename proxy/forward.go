package proxy

import (
	"maps"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A downstream is where a request came in and where its response goes out. It
// alone knows the request and the response as net/http, or another server, has
// them.
type downstream interface {
	// answer sends a response of ours.
	answer(a respond.Response)
	// forward adds to t what only the downstream knows, takes the request to the pool and
	// the response back. When the response breaks off on its way, the downstream sees to
	// it that the client can tell.
	forward(p *upstream.Pool, t *upstream.Request) upstream.Result
	// beforeEnd has release called once, before the end of the response is sent.
	// What release is given sends what there is of the response so far.
	beforeEnd(release func(flush func()))
}

// A forwardRequest is what the upstream is asked.
type forwardRequest struct {
	request upstream.Request
	edit    func(status int, h *http1.Fields) // exchange.onHeader, made once
}

func (s *forwardRequest) reset() { s.request = upstream.Request{} }

// A forwardOutcome is what came of a request that limits have let pass.
type forwardOutcome struct {
	result upstream.Result
	known  bool          // there is one
	took   time.Duration // until the response was passed on or given up
	refund bool          // the upstream asked not to count this request
}

// forward takes the request to its upstream. What cannot be forwarded is
// answered here.
func (g *generation) forward(x *exchange, d downstream) {
	if x.route.Upstream == nil {
		x.reply(d)
		return
	}
	began := time.Now()
	to := &x.sending.request // field by field, since a whole one would be copied
	to.Start, to.RequestID, to.Method, to.Proto, to.Scheme = began, x.id, x.request.Method, x.request.Proto, x.in.scheme
	to.Path, to.RawQuery, to.Length = x.route.rewrite.path(x.request.Path), x.request.RawQuery, x.in.length
	to.Host, to.SetHost = x.request.Authority, x.route.rewrite.Host
	to.Client, to.Peer, to.TrustedPeer = x.client.addr, x.in.peer, x.client.trustedPeer
	to.HashBy, to.Forwarded, to.WebSocket = g.hashBy(x), x.route.Upstream.Forwarded, x.route.WebSocket
	to.Set, to.Reserved, to.OnHeader = g.setFields(x), x.route.reserved, x.sending.edit
	to.Set = x.trace.forwards(began, to.Set)
	x.outcome.result = d.forward(x.route.pool, to)
	x.outcome.took = time.Since(began)
	x.took = began.Sub(x.began) + x.outcome.took
	x.fail(x.outcome.result.Err)
	if x.outcome.result.Kind != upstream.OK && !x.outcome.result.HeaderSent {
		d.answer(failed(x))
	}
	if x.answer.status == 0 { // a connection that was handed over writes no status
		x.answer.status = x.outcome.result.Status
	}
}

// setFields are the fields that the route sets or takes out, and those in which the
// upstream learns the keys of the request. What
// a client sends in them never reaches an upstream, by whatever route.
func (g *generation) setFields(x *exchange) map[string][]string {
	if len(g.keyFields) == 0 {
		return x.route.rewrite.set
	}
	set := map[string][]string{}
	maps.Copy(set, x.route.rewrite.set)
	for _, name := range g.keyFields {
		set[name] = []string{}
	}
	for _, f := range x.extracted.value.Set {
		if f.Value != "" {
			set[f.Name] = []string{f.Value}
		}
	}
	return set
}

// onHeader tells the client of the forwarded response what is left of its
// quota, and takes out the upstream's wish that this request shall not count.
func (x *exchange) onHeader(status int, h *http1.Fields) {
	if name := x.route.RefundOn.Header; name != "" && len(h.Values(name)) > 0 {
		x.outcome.refund = true
		h.Del(name)
	}
	x.route.rewrite.answer(h)
	if len(x.claims.claims) > 0 {
		x.restore(status, &x.outcome)
		x.told.memory.Reset()
		x.route.quota.Headers(x.verdict(), h)
	}
	h.SetKnown(http1.XRequestID, x.id)
}
