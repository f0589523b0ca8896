package proxy

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/trace"
)

// A recorder writes one access log line and updates the metrics for each request. It is the only
// stage that logs requests.
//
// The default fields of a line are request_id, route, method, host, path, status, bytes,
// duration_ms and client (according to privacy.log_client). Where they apply, there are upstream
// and upstream_ms; for the first limit that refused, limit, rate (phone-1h), wait_ms, key, masked
// and banned, with ban_began if this refusal started the ban; also, the other rates that refused,
// with rate, key, masked and banned; shadow, in the same form, what limits in shadow mode would
// have refused, with unfit if the request has no valid claim on the limit; cached_refusal, the limits whose
// refusal was repeated without asking the store; list (the one that
// decided), new_keys (refused or shadow_refused, for too many new keys), refunded, fallback, error and
// keys (what a Replay needs of each key, accesslog.go) with decided_at (the time of the decision, in
// milliseconds by the clock of a shared store), and listener, if another proxy asked about the request (decide.go). The query is never logged. Of a key, only the beginning of a hash is logged, which does
// not reveal the value (redact.go), and a masked value if the key is sensitive.
//
// The configuration selects among these and further fields (accesslog.go), samples the lines of
// allowed requests, or selects another format.
//
// Of requests reset by HTTP/2 clients, only a sample is logged; the metrics count all.
type recorder struct {
	AccessWriter
	metrics *proxyMetrics
	resets  *zerolog.BurstSampler
	ids     requestIDs
	sampled atomic.Uint64 // allowed requests, of which only a sample is logged
}

// An AccessWriter is the destination of the access log: Log for JSON, Lines for other formats.
// Writing must not block on I/O.
type AccessWriter struct {
	Log   zerolog.Logger
	Lines io.Writer
}

func newRecorder(o Options, m *proxyMetrics) *recorder {
	to := AccessWriter{o.Log, os.Stderr}
	if o.Access != nil {
		to = *o.Access
	}
	return &recorder{AccessWriter: to, metrics: m, resets: &zerolog.BurstSampler{Burst: loggedResets, Period: time.Second}}
}

// start records the start of a request.
func (r *recorder) start(x *exchange) { x.began = time.Now() }

// setID sets the request id. An id from a trusted proxy is kept.
func (r *recorder) setID(x *exchange) {
	if x.client.trustedPeer {
		if ids := x.in.header.Values("X-Request-Id"); len(ids) == 1 && isID(ids[0]) {
			x.id, x.idGiven = ids[0], true
			return
		}
	}
	if x.unusedIDs == "" {
		x.unusedIDs = r.ids.batch()
	}
	x.id, x.unusedIDs = x.unusedIDs[:idLength], x.unusedIDs[idLength:]
}

// isID reports whether s may be forwarded and logged as a request id.
func isID(s string) bool { return len(s) <= 128 && httpguts.ValidHeaderFieldName(s) }

// record updates the metrics of a request and writes its log line.
func (r *recorder) record(x *exchange) {
	name := r.metrics.countResponse(x)
	if x.Repeated {
		r.metrics.repeats.WithLabelValues(name).Inc()
	}
	r.metrics.countUnknownPlans(x)
	if x.list != nil {
		r.metrics.listMatches.WithLabelValues(name, x.list.Name, string(x.list.Action)).Inc()
	}
	l := &x.generation.accessLog
	if l.format == config.LogNone || r.Log.GetLevel() > zerolog.InfoLevel {
		return
	}
	if x.response.streamReset && !r.resets.Sample(zerolog.InfoLevel) {
		r.metrics.unloggedResets.Inc()
		return
	}
	switch {
	case l.isSampled(x) && r.sampled.Add(1)%l.sample != 1:
	case l.format == config.LogCombined:
		r.combined(x)
	default:
		r.json(x, name)
	}
}

// json writes the line of x, whose route has the given name, as JSON.
func (r *recorder) json(x *exchange, name string) {
	l := &x.generation.accessLog
	e := logLine{r.Log.Info(), l.fields}
	e.request(x, name)
	refused := e.refusals(x)
	e.outcome(x)
	if x.Err != nil && !refused && e.has(logError) {
		e.AnErr("error", x.Err)
	}
	x.writeKeys(e)
	if x.Decided && x.Fallback == "" && x.generation.config.Store == config.StoreRedis && e.has(logDecidedAt) {
		e.Int64("decided_at", x.Decision.At.UnixMilli()) // by the clock that all nodes share
	}
	e.given(logTraceID, x.traceID())
	if e.has(logSample) && l.isSampled(x) { // the line represents several requests
		e.Uint64("sample", l.sample)
	}
	e.optional(x)
	e.Msg("request")
}

// request writes the fields of the request and the response.
func (l logLine) request(x *exchange, name string) {
	l.text(logRequestID, x.id)
	l.text(logRoute, name)
	l.text(logMethod, x.request.Method)
	l.text(logHost, x.request.Host)
	if l.has(logPath) {
		l.Str("path", x.redactedPath())
	}
	if l.has(logStatus) {
		l.Int("status", x.response.status)
	}
	if l.has(logBytes) {
		l.Int64("bytes", x.response.bytes)
	}
	l.ms(logDuration, x.duration)
	if l.has(logClient) {
		l.given(logClient, x.generation.redact.client(x))
	}
	l.given(logListener, x.in.listener)
	if target := x.outcome.result.Target; target != "" {
		l.text(logUpstream, target)
		l.ms(logUpstreamMS, x.outcome.result.FirstByte)
	}
}

// outcome writes the fields of the decision, except refusals.
func (l logLine) outcome(x *exchange) {
	l.given(logNewKeys, x.newKeys)
	if x.Repeated {
		l.flag(logRepeated)
	}
	if x.list != nil {
		l.text(logList, x.list.Name)
	}
	if x.Settled.Refunded {
		l.flag(logRefunded)
	}
	l.given(logUsed, x.Settled.Used)
	if x.Steps != nil {
		l.given(logChallenge, x.Steps.Result.String())
	}
	l.given(logFallback, x.Fallback)
}

// optional writes the fields that are not written by default.
func (l logLine) optional(x *exchange) {
	if l.logFields>>standardFields == 0 {
		return
	}
	l.text(logProto, x.request.Proto)
	l.text(logScheme, x.in.scheme)
	l.ms(logOwnMS, x.ownDuration())
	if x.Waited {
		l.ms(logWaitedMS, x.WaitTime)
	}
	l.given(logUserAgent, x.in.userAgent)
	l.given(logReferer, x.in.referer)
}

// spans are the times that a request took: altogether, in Weir itself, with its upstream, and waiting for a permit. The
// first alwaysSpent are of each request.
type spans [4]time.Duration

const alwaysSpent = 2

func (x *exchange) spans() spans {
	return spans{x.duration, x.ownDuration(), x.outcome.duration, x.WaitTime}
}

// ownDuration returns the time spent on x without the upstream and without waiting for a permit.
func (x *exchange) ownDuration() time.Duration { return x.duration - x.outcome.duration - x.WaitTime }

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
	with := map[string][]string{}
	maps.Copy(with, set)
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
	if !t.decisionStart.IsZero() && len(x.Claims)+len(x.Shadow.Claims) > 0 {
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
	s.Attributes = append(s.Attributes, given(trace.String("network.protocol.version", protocolVersion(x.request.Proto)), trace.String("client.address", x.generation.redact.client(x)))...)
	if x.route != nil {
		s.Name += " " + x.route.Match.Path
		s.Attributes = append(s.Attributes, trace.String("http.route", x.route.Match.Path), trace.String("weir.route", x.route.Name))
	}
	return s
}

// given returns the attributes with a value.
func given(all ...trace.Attribute) []trace.Attribute {
	return slices.DeleteFunc(all, func(a trace.Attribute) bool { return a.Value.GetStringValue() == "" && a.Value.GetIntValue() == 0 })
}

// protocolVersion returns the version in the notation of OpenTelemetry: 1.1, 2. A request that could not be parsed
// has none.
func protocolVersion(proto string) string {
	return strings.Replace(strings.TrimPrefix(proto, "HTTP/"), "2.0", "2", 1)
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
	case x.Shadow.Refuses():
		result = limit.ShadowRefused
	}
	s.Attributes = append(s.Attributes, given(trace.String("weir.decision", result), trace.String("weir.fallback", x.Fallback))...)
	if x.Waited {
		s.Attributes = append(s.Attributes, trace.Int64("weir.waited_ms", x.WaitTime.Milliseconds()))
	}
	return s
}

// forwardSpan returns the span of the forwarded request.
func (t *tracing) forwardSpan(x *exchange) *trace.Span {
	method, result, start := traceMethod(x.request.Method), x.outcome.result, x.monotonicTime(t.forwardStart)
	failure := ""
	if result.Err != nil {
		failure = upstreamOutcome(result.Kind)
	}
	return &trace.Span{
		SpanContext: t.upstream, Parent: t.Span, State: t.state, Name: method + " " + x.route.pool.Name(), Kind: trace.Client,
		Start: start, End: start.Add(x.outcome.duration), Failed: result.Err != nil || result.Status >= 400,
		Attributes: given(
			trace.String("http.request.method", method), trace.String("weir.upstream", x.route.pool.Name()),
			trace.String("weir.target", result.Target), trace.Int64("http.response.status_code", int64(result.Status)),
			trace.String("error.type", failure), trace.Int64("http.request.resend_count", int64(result.Retries)),
		),
	}
}
