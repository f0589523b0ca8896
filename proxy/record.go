package proxy

import (
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
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
	log     zerolog.Logger
	lines   io.Writer // destination of lines in formats other than JSON
	metrics *proxyMetrics
	resets  logSampler
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
	return &recorder{log: to.Log, lines: to.Lines, metrics: m, resets: logSampler{perSecond: loggedResets}}
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
	if x.IsRepeat {
		r.metrics.repeats.WithLabelValues(name).Inc()
	}
	r.metrics.countUnknownPlans(x)
	if x.list != nil {
		r.metrics.listMatches.WithLabelValues(name, x.list.Name, string(x.list.Action)).Inc()
	}
	l := &x.generation.accessLog
	if l.format == config.LogNone || r.log.GetLevel() > zerolog.InfoLevel {
		return
	}
	if x.response.streamReset && !r.resets.allow(time.Now()) {
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
	e := r.log.Info()
	logRequest(e, x, name)
	refused := x.logRefusals(e, l.fields)
	logOutcome(e, x)
	if x.Err != nil && !refused && l.fields.has(logError) {
		e.AnErr("error", x.Err)
	}
	x.writeKeys(e)
	if x.Decided && x.Fallback == "" && x.generation.config.Store == config.StoreRedis && l.fields.has(logDecidedAt) {
		e.Int64("decided_at", x.Decision.At.UnixMilli()) // by the clock that all nodes share
	}
	if id := x.traceID(); id != "" && l.fields.has(logTraceID) {
		e.Str("trace_id", id)
	}
	if l.fields.has(logSample) && l.isSampled(x) { // the line represents several requests
		e.Uint64("sample", l.sample)
	}
	logOptional(e, x)
	e.Msg("request")
}

// logRequest writes the fields of the request and the response.
func logRequest(e *zerolog.Event, x *exchange, name string) {
	f := x.generation.accessLog.fields
	text := func(field logField, name, value string) {
		if f.has(field) {
			e.Str(name, value)
		}
	}
	text(logRequestID, "request_id", x.id)
	text(logRoute, "route", name)
	text(logMethod, "method", x.request.Method)
	text(logHost, "host", x.request.Host)
	if f.has(logPath) {
		e.Str("path", x.redactedPath())
	}
	if f.has(logStatus) {
		e.Int("status", x.response.status)
	}
	if f.has(logBytes) {
		e.Int64("bytes", x.response.bytes)
	}
	if f.has(logDuration) {
		logMS(e, "duration_ms", x.duration)
	}
	if f.has(logClient) {
		if client := x.generation.redact.client(x); client != "" {
			e.Str("client", client)
		}
	}
	if x.in.listener != "" {
		text(logListener, "listener", x.in.listener)
	}
	if x.outcome.result.Target != "" {
		text(logUpstream, "upstream", x.outcome.result.Target)
		if f.has(logUpstreamMS) {
			logMS(e, "upstream_ms", x.outcome.result.FirstByte)
		}
	}
}

// logOutcome writes the fields of the decision, except refusals.
func logOutcome(e *zerolog.Event, x *exchange) {
	f := x.generation.accessLog.fields
	if x.newKeys != "" && f.has(logNewKeys) {
		e.Str("new_keys", x.newKeys)
	}
	if x.IsRepeat && f.has(logRepeated) {
		e.Bool("repeated", true)
	}
	if x.list != nil && f.has(logList) {
		e.Str("list", x.list.Name)
	}
	if x.Settled.Refunded && f.has(logRefunded) {
		e.Bool("refunded", true)
	}
	if x.Steps != nil && x.Steps.Result != decisions.NoChallenge && f.has(logChallenge) {
		e.Str("challenge", x.Steps.Result.String())
	}
	if x.Fallback != "" && f.has(logFallback) {
		e.Str("fallback", x.Fallback)
	}
}

// logOptional writes the fields that are not written by default.
func logOptional(e *zerolog.Event, x *exchange) {
	f := x.generation.accessLog.fields
	if f>>standardFields == 0 {
		return
	}
	if f.has(logProto) {
		e.Str("proto", x.request.Proto)
	}
	if f.has(logScheme) {
		e.Str("scheme", x.in.scheme)
	}
	if f.has(logOwnMS) {
		logMS(e, "own_ms", x.ownDuration())
	}
	if f.has(logWaitedMS) && x.Waited {
		logMS(e, "waited_ms", x.WaitTime)
	}
	if f.has(logUserAgent) && x.in.userAgent != "" {
		e.Str("user_agent", x.in.userAgent)
	}
	if f.has(logReferer) && x.in.referer != "" {
		e.Str("referer", x.in.referer)
	}
}

// ownDuration returns the time spent on x without the upstream and without waiting for a permit.
func (x *exchange) ownDuration() time.Duration { return x.duration - x.outcome.duration - x.WaitTime }

// logMS writes d in milliseconds.
func logMS(e *zerolog.Event, name string, d time.Duration) {
	var space [24]byte
	e.RawJSON(name, appendMS(space[:0], d))
}

// appendMS appends d in milliseconds, in the same notation as zerolog, in a tenth of the time that formatting a
// floating-point number takes.
func appendMS(b []byte, d time.Duration) []byte {
	us := d.Microseconds()
	if us < 0 {
		b, us = append(b, '-'), -us
	}
	b = strconv.AppendInt(b, us/1000, 10)
	digits := [...]byte{'.', '0' + byte(us/100%10), '0' + byte(us/10%10), '0' + byte(us%10)}
	n := len(digits)
	for n > 1 && digits[n-1] == '0' {
		n--
	}
	if n > 1 {
		b = append(b, digits[:n]...)
	}
	return b
}
