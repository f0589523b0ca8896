package proxy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/trace"
)

// maxTraceState is how long a tracestate may be that is passed on (W3C Trace Context).
const maxTraceState = 512

// A tracing is what is known of a request's trace on its way: of every request where
// traces are on, whether or not this one is recorded, for its upstream must know. It is
// nil where they are off, and then costs nothing.
type tracing struct {
	trace.SpanContext                   // the request's own span
	parent            trace.SpanID      // zero for none
	state             string            // tracestate
	upstream          trace.SpanContext // the span of what is forwarded
	asked, decided    time.Time         // the limits
	forward           time.Time         // when the upstream was to be asked
}

// traceHeaders are the fields of W3C Trace Context in canonical form.
const (
	traceParentField = "Traceparent"
	traceStateField  = "Tracestate"
)

// beginTrace finds out what trace x belongs to.
func (p *Proxy) beginTrace(g *generation, x *exchange) {
	if p.traces == nil {
		return
	}
	t := &tracing{}
	x.trace = t
	c := &g.config.Traces
	if c.Parent == config.ParentAny || c.Parent == config.ParentTrusted && x.client.trustedPeer {
		if fields := x.in.header.Values(traceParentField); len(fields) == 1 {
			if parent, ok := trace.Parse(fields[0]); ok {
				t.SpanContext, t.parent, t.state = parent.Child(), parent.Span, traceState(x.in.header.Values(traceStateField))
				return
			}
		}
	}
	t.SpanContext = trace.Root(c.Sample)
}

// traceState is what is passed on of tracestate. It may be cut at no comma, so one that
// is too long is left out.
func traceState(lines []string) string {
	state := strings.Join(lines, ",")
	if len(state) > maxTraceState {
		return ""
	}
	return strings.Clone(state)
}

// asks notes that the limits are asked now.
func (t *tracing) asks() {
	if t != nil {
		t.asked = time.Now()
	}
}

// answered notes that they have answered.
func (t *tracing) answered() {
	if t != nil {
		t.decided = time.Now()
	}
}

// forwards notes that the request is forwarded at now, and adds the trace to the fields
// that are set. What the client said of a trace that is not believed goes no further.
func (t *tracing) forwards(now time.Time, set map[string][]string) map[string][]string {
	if t == nil {
		return set
	}
	t.forward, t.upstream = now, t.Child()
	with := maps.Clone(set)
	if with == nil {
		with = map[string][]string{}
	}
	with[traceParentField], with[traceStateField] = []string{t.upstream.String()}, []string{}
	if t.state != "" {
		with[traceStateField] = []string{t.state}
	}
	return with
}

// traceID is the trace in which x is recorded; empty if it is not.
func (x *exchange) traceID() string {
	if x.trace == nil || !x.trace.Sampled() {
		return ""
	}
	return x.trace.Trace.String()
}

// endTrace hands over the spans of x, if it is recorded. Nothing stands in them that the
// log would not show: no query, no key, and of paths and clients what the configuration
// wants.
func (p *Proxy) endTrace(x *exchange) {
	t := x.trace
	if t == nil || !t.Sampled() {
		return
	}
	spans := []*trace.Span{t.request(x)}
	if !t.asked.IsZero() && len(x.claims.claims)+len(x.shadows.claims) > 0 {
		spans = append(spans, t.decision(x))
	}
	if !t.forward.IsZero() {
		spans = append(spans, t.forwarded(x))
	}
	p.traces.Add(spans)
}

// request is the span of the whole request.
func (t *tracing) request(x *exchange) *trace.Span {
	method := traceMethod(x.request.Method)
	s := &trace.Span{
		SpanContext: t.SpanContext, Parent: t.parent, State: t.state, Name: method, Kind: trace.Server, Start: x.began, End: x.began.Add(x.took),
		Failed: x.answer.status >= 500,
		Attributes: []trace.Attribute{
			trace.String("http.request.method", method), trace.String("url.scheme", x.in.scheme), trace.String("url.path", strings.Clone(x.redactedPath())),
			trace.String("server.address", strings.Clone(x.request.Host)), trace.String("network.protocol.version", strings.TrimPrefix(x.request.Proto, "HTTP/")),
			trace.Int64("http.response.status_code", int64(x.answer.status)), trace.String("weir.request_id", strings.Clone(x.id)),
		},
	}
	if x.route != nil {
		s.Name += " " + x.route.Match.Path
		s.Attributes = append(s.Attributes, trace.String("http.route", x.route.Match.Path), trace.String("weir.route", x.route.Name))
	}
	if client := x.generation.redact.client(x); client != "" {
		s.Attributes = append(s.Attributes, trace.String("client.address", client))
	}
	return s
}

// traceMethod is method if it is one that everybody knows: names of spans are few.
func traceMethod(method string) string {
	known := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "CONNECT"}
	if i := slices.Index(known, method); i >= 0 {
		return known[i]
	}
	return "_OTHER"
}

// at is when t was, by the clock that x began by. The wall clock is read a moment apart
// from the monotonic one, so that the sum of two durations could end after the whole.
func (x *exchange) at(t time.Time) time.Time { return x.began.Add(t.Sub(x.began)) }

// decision is the span of what the limits were asked, waiting included.
func (t *tracing) decision(x *exchange) *trace.Span {
	s := &trace.Span{SpanContext: t.Child(), Parent: t.Span, State: t.state, Name: "decide", Start: x.at(t.asked), End: x.at(t.decided)}
	result := allowed
	first, isRefused := x.refusing()
	switch {
	case isRefused:
		result = refused
		s.Attributes = append(s.Attributes, trace.String("weir.limit", x.claims.windows[first].of.Name), trace.String("weir.rate", x.claims.windows[first].rate))
	case errors.Is(x.err, errUndecided), errors.Is(x.err, limiter.ErrUnavailable) && x.fallback == "":
		result, s.Failed = unavailable, true
	case len(x.shadowed)+len(x.shadowErrors) > 0:
		result = shadowRefused
	}
	s.Attributes = append(s.Attributes, trace.String("weir.decision", result))
	if x.fallback != "" {
		s.Attributes = append(s.Attributes, trace.String("weir.fallback", x.fallback))
	}
	if x.waited {
		s.Attributes = append(s.Attributes, trace.Int64("weir.waited_ms", x.waitTook.Milliseconds()))
	}
	return s
}

// forwarded is the span of what the upstream was asked.
func (t *tracing) forwarded(x *exchange) *trace.Span {
	method, result := traceMethod(x.request.Method), upstreamOutcome(x.outcome.result.Kind)
	start := x.at(t.forward)
	s := &trace.Span{
		SpanContext: t.upstream, Parent: t.Span, State: t.state, Name: method + " " + x.route.pool.Name(), Kind: trace.Client,
		Start: start, End: start.Add(x.outcome.took), Failed: x.outcome.result.Err != nil || x.outcome.result.Status >= 400,
		Attributes: []trace.Attribute{trace.String("http.request.method", method), trace.String("weir.upstream", x.route.pool.Name())},
	}
	if x.outcome.result.Target != "" {
		s.Attributes = append(s.Attributes, trace.String("weir.target", x.outcome.result.Target))
	}
	if x.outcome.result.Status != 0 {
		s.Attributes = append(s.Attributes, trace.Int64("http.response.status_code", int64(x.outcome.result.Status)))
	}
	if x.outcome.result.Err != nil {
		s.Attributes = append(s.Attributes, trace.String("error.type", result))
	}
	if x.outcome.result.Retries > 0 {
		s.Attributes = append(s.Attributes, trace.Int64("http.request.resend_count", int64(x.outcome.result.Retries)))
	}
	return s
}
