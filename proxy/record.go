package proxy

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config"
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
