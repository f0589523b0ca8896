package proxy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/trace"
)

// maxTraceState is the maximum length of a tracestate that is forwarded (W3C Trace Context).
const maxTraceState = 512

// A tracing is the trace of a request. If tracing is enabled, every request has one, sampled or
// not, because the upstream must be told of the decision. Otherwise it is nil and costs nothing.
type tracing struct {
	trace.SpanContext                            // the request's own span
	parent                     trace.SpanID      // zero if there is none
	state                      string            // tracestate
	upstream                   trace.SpanContext // the span of the forwarded request
	decisionStart, decisionEnd time.Time         // when the decision of the limits began and ended
	forwardStart               time.Time         // when forwarding began
}

// The fields of W3C Trace Context in canonical form.
const (
	traceParentField = "Traceparent"
	traceStateField  = "Tracestate"
)

// beginTrace determines the trace of x. There must be an exporter of traces.
func (p *Proxy) beginTrace(g *generation, x *exchange) {
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

// traceState returns the tracestate to forward. It cannot be truncated at an arbitrary comma, so it
// is dropped if it is too long.
func traceState(lines []string) string {
	state := strings.Join(lines, ",")
	if len(state) > maxTraceState {
		return ""
	}
	return strings.Clone(state)
}

// beginForward records the start of forwarding, and adds the trace to the fields to set. Trace fields
// of an untrusted client are not forwarded.
func (t *tracing) beginForward(now time.Time, set map[string][]string) map[string][]string {
	t.forwardStart, t.upstream = now, t.Child()
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

// isTraced reports whether x has a trace that is exported.
func (x *exchange) isTraced() bool { return x.trace != nil && x.trace.Sampled() }

// traceID returns the trace id of x, or "" if x is not sampled.
func (x *exchange) traceID() string {
	if !x.isTraced() {
		return ""
	}
	return x.trace.Trace.String()
}

// endTrace exports the spans of x, which is sampled. They contain no data that the log would not
// show: no query, no key, and paths and client addresses as configured.
func (p *Proxy) endTrace(x *exchange) {
	t := x.trace
	spans := []*trace.Span{t.requestSpan(x)}
	if !t.decisionStart.IsZero() && len(x.Claims)+len(x.Shadows) > 0 {
		spans = append(spans, t.decisionSpan(x))
	}
	if !t.forwardStart.IsZero() {
		spans = append(spans, t.forwardSpan(x))
	}
	p.traces.Add(spans)
}

// requestSpan returns the span of the whole request.
func (t *tracing) requestSpan(x *exchange) *trace.Span {
	method := traceMethod(x.request.Method)
	s := &trace.Span{
		SpanContext: t.SpanContext, Parent: t.parent, State: t.state, Name: method, Kind: trace.Server, Start: x.began, End: x.began.Add(x.duration),
		Failed: x.response.status >= 500,
		Attributes: []trace.Attribute{
			trace.String("http.request.method", method), trace.String("url.scheme", x.in.scheme), trace.String("url.path", strings.Clone(x.redactedPath())),
			trace.String("server.address", strings.Clone(x.request.Host)),
			trace.Int64("http.response.status_code", int64(x.response.status)), trace.String("weir.request_id", strings.Clone(x.id)),
		},
	}
	s.Attributes = append(s.Attributes, protocolVersion(x.request.Proto)...)
	if x.route != nil {
		s.Name += " " + x.route.Match.Path
		s.Attributes = append(s.Attributes, trace.String("http.route", x.route.Match.Path), trace.String("weir.route", x.route.Name))
	}
	if client := x.generation.redact.client(x); client != "" {
		s.Attributes = append(s.Attributes, trace.String("client.address", client))
	}
	return s
}

// protocolVersion returns the attribute of the version in the notation of OpenTelemetry: 1.1, 2. A request that
// could not be parsed has none.
func protocolVersion(proto string) []trace.Attribute {
	version, found := strings.CutPrefix(proto, "HTTP/")
	if !found {
		return nil
	}
	return []trace.Attribute{trace.String("network.protocol.version", strings.Replace(version, "2.0", "2", 1))}
}

// traceMethod returns method if it is a known one, so that there are few span names.
func traceMethod(method string) string {
	known := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "CONNECT"}
	if i := slices.Index(known, method); i >= 0 {
		return known[i]
	}
	return "_OTHER"
}

// monotonicTime returns t on the clock of x.began. The wall clock and the monotonic clock are not read at the
// same instant, so that a child span computed from wall clocks could end after its parent.
func (x *exchange) monotonicTime(t time.Time) time.Time { return x.began.Add(t.Sub(x.began)) }

// decisionSpan returns the span of the decision, including the wait for a permit.
func (t *tracing) decisionSpan(x *exchange) *trace.Span {
	s := &trace.Span{SpanContext: t.Child(), Parent: t.Span, State: t.state, Name: "decide", Start: x.monotonicTime(t.decisionStart), End: x.monotonicTime(t.decisionEnd)}
	result := limit.Allowed
	first, isRefused := x.FirstRefused()
	switch {
	case isRefused:
		result = limit.Refused
		s.Attributes = append(s.Attributes, trace.String("weir.limit", x.Claims.Window(first).Of.Name), trace.String("weir.rate", x.Claims.Window(first).LogName))
	case errors.Is(x.Err, limit.ErrUndecided), errors.Is(x.Err, limiter.ErrUnavailable) && x.Fallback == "":
		result, s.Failed = limit.Unavailable, true
	case len(x.ShadowRefusals)+len(x.ShadowErrors) > 0:
		result = limit.ShadowRefused
	}
	s.Attributes = append(s.Attributes, trace.String("weir.decision", result))
	if x.Fallback != "" {
		s.Attributes = append(s.Attributes, trace.String("weir.fallback", x.Fallback))
	}
	if x.Waited {
		s.Attributes = append(s.Attributes, trace.Int64("weir.waited_ms", x.WaitTime.Milliseconds()))
	}
	return s
}

// forwardSpan returns the span of the forwarded request.
func (t *tracing) forwardSpan(x *exchange) *trace.Span {
	method, result := traceMethod(x.request.Method), upstreamOutcome(x.outcome.result.Kind)
	start := x.monotonicTime(t.forwardStart)
	s := &trace.Span{
		SpanContext: t.upstream, Parent: t.Span, State: t.state, Name: method + " " + x.route.pool.Name(), Kind: trace.Client,
		Start: start, End: start.Add(x.outcome.duration), Failed: x.outcome.result.Err != nil || x.outcome.result.Status >= 400,
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
