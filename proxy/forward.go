package proxy

import (
	"maps"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A downstream is where a request came in and where its answer goes out. It alone
// knows the request and the response as net/http, or another server, has them.
type downstream interface {
	// answer sends an answer of ours.
	answer(a respond.Answer)
	// forward takes the request to the pool and the answer back. When the answer
	// breaks off on its way, the downstream sees to it that the client can tell.
	forward(p *upstream.Pool, t *upstream.Request) upstream.Result
	// beforeEnd has release called once, before the end of the answer is sent. What
	// release is given sends what there is of the answer so far.
	beforeEnd(release func(flush func()))
}

// forward takes the request to its upstream. What cannot be forwarded is
// answered here.
func (g *generation) forward(x *exchange, d downstream) {
	if x.route.reply != nil {
		x.reply(d)
		return
	}
	x.asking = upstream.Request{
		Path:        x.route.rewrite.path(x.path),
		RawQuery:    x.rawQuery,
		Host:        x.authority,
		SetHost:     x.route.rewrite.host,
		Proto:       x.proto,
		Scheme:      x.scheme,
		Client:      x.client,
		Peer:        x.peer,
		TrustedPeer: x.trusted,
		RequestID:   x.id,
		HashBy:      g.hashBy(x),
		Forwarded:   x.route.forwardedField,
		WebSocket:   x.route.upgrades,
		Set:         g.setFields(x),
		Reserved:    x.route.reserved,
		OnHeader:    x.edit,
	}
	began := time.Now()
	x.asking.Set = x.trace.forwards(began, x.asking.Set)
	x.result = d.forward(x.route.pool, &x.asking)
	x.upstreamTook = time.Since(began)
	x.fail(x.result.Err)
	if x.result.Kind != upstream.OK && !x.result.Wrote {
		d.answer(failed(x))
	}
	if x.status == 0 { // a connection that was handed over writes no status
		x.status = x.result.Status
	}
}

// setFields are the fields that the route sets or takes out, and those in which the
// upstream learns the keys of the request. What
// a client sends in them never reaches an upstream, by whatever route.
func (g *generation) setFields(x *exchange) http.Header {
	if len(g.keyFields) == 0 {
		return x.route.rewrite.set
	}
	set := http.Header{}
	maps.Copy(set, x.route.rewrite.set)
	for _, name := range g.keyFields {
		set[name] = []string{}
	}
	for _, f := range x.value.Set {
		if f.Value != "" {
			set[f.Name] = []string{f.Value}
		}
	}
	return set
}

// onHeader tells the client of the forwarded answer what is left of its quota,
// and takes out the upstream's wish that this request shall not count.
func (x *exchange) onHeader(status int, h upstream.Header) {
	if name := x.route.refund.Header; name != "" && len(h.Values(name)) > 0 {
		x.asked = true
		h.Del(name)
	}
	x.route.rewrite.answer(h)
	if len(x.claims) > 0 {
		x.restore(status)
		x.memory.Reset()
		x.route.quota.Headers(x.verdict(), h)
	}
	h.Set("X-Request-Id", x.id)
}
