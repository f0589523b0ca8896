package proxy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A downstream is the connection to the client. It receives a request and sends its response. The
// request and the response as net/http or package http1 represent them are known only to it.
type downstream interface {
	// respond sends a response by Weir itself.
	respond(a respond.Response)
	// forward adds to t the fields that only the downstream has, forwards the request to the pool
	// and relays the response. If the response is truncated, forward makes that visible to the
	// client.
	forward(p *upstream.Pool, t *upstream.Request) upstream.Result
	// beforeEnd registers release, which is called once before the end of the response is sent. Its
	// argument flush sends the part of the response that is available.
	beforeEnd(release func(flush func()))
}

// A forwardRequest is the request sent to the upstream.
type forwardRequest struct {
	request upstream.Request
	edit    func(status int, h *http1.Fields) // exchange.onHeader, bound once
}

// A forwardOutcome is the result of a forwarded request.
type forwardOutcome struct {
	result   upstream.Result
	known    bool          // result is set
	duration time.Duration // until the response was relayed or forwarding failed
	refund   bool          // the upstream asked that this request not be counted
}

// forward sends the request to its upstream and relays the response. If it cannot be forwarded,
// forward responds with the error.
func (g *generation) forward(x *exchange, d downstream) {
	if x.route.Upstream == nil {
		d.respond(x.reply())
		return
	}
	// Now, from one clock; time.Now reads two.
	before := time.Since(x.began)
	began := x.began.Add(before)
	to := &x.forwarded.request // set field by field: assigning the struct would copy it
	to.Start, to.RequestID, to.Method, to.Proto, to.Scheme = began, x.id, x.request.Method, x.request.Proto, x.in.scheme
	to.Path, to.RawQuery, to.Length = x.route.rewrite.path(&x.request.Target), x.request.RawQuery, x.in.length
	to.Host, to.SetHost = x.request.Authority, x.route.rewrite.Host
	to.Client, to.Peer, to.TrustedPeer = x.client.addr, x.in.peer, x.client.trustedPeer
	to.HashBy, to.Forwarded, to.WebSocket, to.Stripe = g.hashBy(x), x.route.Upstream.Forwarded, x.route.WebSocket, x.Stripe
	to.Set, to.Reserved, to.OnHeader = g.setFields(x), x.route.isReservedTrailer, x.forwarded.edit
	if x.trace != nil {
		to.Set = x.trace.beginForward(began, to.Set)
	}
	x.outcome.result = d.forward(x.route.pool, to)
	x.duration = time.Since(x.began)
	x.outcome.duration = x.duration - before
	x.Fail(x.outcome.result.Err)
	if x.leftUpstreamWorking() {
		x.Admitter.Hold(&x.Admission, x.route.Upstream.Timeouts.Response)
	}
	if x.outcome.result.Kind != upstream.OK && !x.outcome.result.HeaderSent {
		x.Admitter.SettleHead(&x.Admission, x.settledOutcome())
		d.respond(x.route.errorTexts.Replace(forwardErrorResponse(x), x.id, x.origin()))
	}
	x.response.status = cmp.Or(x.response.status, x.outcome.result.Status) // a connection that was handed over writes none
}

// leftUpstreamWorking reports whether the client left, or its body failed, while the upstream may have been working on the
// request. An upstream that has begun its response notices with its next write.
func (x *exchange) leftUpstreamWorking() bool {
	r := &x.outcome.result
	return r.Kind.IsByClient() && r.Sent && r.Status == 0
}

// setFields returns the fields that the route sets or removes, and the fields in which the upstream
// receives keys of the request. Fields for keys are always set or removed, so that a client's value
// never reaches an upstream. Tokens of challenges are removed. Fields for plans and that of client_ip.header are removed unless a
// trusted proxy has sent them.
func (g *generation) setFields(x *exchange) map[string][]string {
	if len(g.keyFields) == 0 && (len(g.proxyFields) == 0 || x.client.trustedPeer) && !x.hasToken() {
		return x.route.rewrite.set
	}
	set := map[string][]string{}
	if !x.client.trustedPeer {
		for _, name := range g.proxyFields {
			set[name] = []string{}
		}
	}
	maps.Copy(set, x.route.rewrite.set)
	for _, name := range g.keyFields {
		set[name] = []string{}
	}
	for _, name := range x.route.TokenFields {
		set[name] = []string{}
	}
	for _, f := range x.extracted.value.Set {
		if f.Value != "" {
			set[f.Name] = []string{f.Value}
		}
	}
	return set
}

// hasToken reports whether the request has a token of a challenge.
func (x *exchange) hasToken() bool {
	return slices.ContainsFunc(x.route.TokenFields, func(name string) bool { return len(x.in.header.Values(name)) > 0 })
}

// settledOutcome returns what settling needs to know of the outcome of x.
func (x *exchange) settledOutcome() limit.Outcome {
	r := &x.outcome.result
	return limit.Outcome{
		Unsent:      r.Target == "" && x.route.pool != nil,
		Refunded:    x.outcome.refund || x.route.refunds[r.Kind],
		Unprocessed: r.Kind == upstream.ConnectFailed || r.Kind == upstream.ConnectTimeout,
		Status:      r.Status,
		Used:        x.used(),
	}
}

// settleHead starts what the status of the response decides about the permits of the request.
func (x *exchange) settleHead(status int) {
	if x.KeepsPermits {
		return
	}
	x.Admitter.SettleHead(&x.Admission, limit.Outcome{Refunded: x.outcome.refund, Status: status})
	x.Admitter.SettleOthers(&x.Admission, x.extracted.keys, status)
}

// onHeader adds the rate limit fields to the header of the forwarded response, and removes the
// field by which the upstream asks for a refund.
func (x *exchange) onHeader(status int, h *http1.Fields) {
	if name := x.route.RefundOn.Header; name != "" && len(h.Values(name)) > 0 {
		x.outcome.refund = true
		h.Del(name)
	}
	if x.route.Usage != nil {
		x.beginUsage(status, h)
	}
	x.route.rewrite.response(h)
	if x.outcome.refund || x.route.SettlesHead() {
		x.settleHead(status)
	}
	if len(x.Claims) > 0 {
		x.AddRefunds(limit.Outcome{Refunded: x.outcome.refund, Status: status})
		x.route.rateLimitFields.Headers(x.verdict(), h)
	}
	h.SetKnown(http1.XRequestID, x.id)
}

// A rewrite changes forwarded requests and their responses. It is immutable.
type rewrite struct {
	*config.Rewrite
	set map[string][]string // request fields to set; a field without values is removed; nil if there are none
}

// newRewrite returns that of a route. An upstream whose responses are read is asked for them without compression, unless the
// operator asks for another.
func newRewrite(from *config.Route) rewrite {
	c := &from.Rewrite
	r := rewrite{Rewrite: c}
	isRead := from.Usage != nil && from.Usage.Format != nil
	if isRead || len(c.Request.Set)+len(c.Request.Remove) > 0 {
		r.set = map[string][]string{}
	}
	if isRead {
		r.set["Accept-Encoding"] = []string{}
	}
	for name, value := range c.Request.Set {
		r.set[name] = []string{value}
	}
	for _, name := range c.Request.Remove {
		r.set[name] = []string{}
	}
	return r
}

// path returns the path of the forwarded request. A prefix is stripped only at the end of a
// segment. If the client wrote the prefix in another spelling, the path has that which was matched.
func (r *rewrite) path(t *routing.Target) string {
	if t.Path == "*" || r.StripPrefix == "" && r.AddPrefix == "" && t.Forwarded != "" {
		return t.Forwarded
	}
	path, ok := r.strip(t.Forwarded)
	if rest, has := r.strip(t.Path); has && !ok {
		path = rest
	}
	if path == "" && r.AddPrefix == "" {
		return "/"
	}
	return r.AddPrefix + path
}

// strip returns path without StripPrefix, if it has it.
func (r *rewrite) strip(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, r.StripPrefix)
	if !ok || rest != "" && rest[0] != '/' {
		return path, false
	}
	if rest != "" {
		rest = "/" + strings.TrimLeft(rest, "/")
	}
	return rest, true
}

// response changes the header of the upstream's response.
func (r *rewrite) response(h *http1.Fields) {
	for _, name := range r.Response.Remove {
		h.Del(name)
	}
	for name, value := range r.Response.Set {
		h.Set(name, value)
	}
}

// refunds returns the kinds of errors after which a route refunds its requests.
func refunds(c config.Refund) map[upstream.ResultKind]bool {
	kinds := map[config.Fault][]upstream.ResultKind{
		config.FaultTimeout:     {upstream.Timeout, upstream.ConnectTimeout},
		config.FaultConnect:     {upstream.ConnectFailed, upstream.ConnectTimeout},
		config.FaultReset:       {upstream.ConnectionReset},
		config.FaultCut:         {upstream.ResponseTruncated},
		config.FaultBadResponse: {upstream.BadResponse},
	}
	all := map[upstream.ResultKind]bool{}
	for _, e := range c.Errors {
		for _, kind := range kinds[e] {
			all[kind] = true
		}
	}
	return all
}
