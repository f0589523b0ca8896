package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A logField is one field of a line of the access log.
type logField uint

// The fields there are: those that are written unless the configuration chooses, then
// the others.
const (
	logRequestID logField = iota
	logRoute
	logMethod
	logHost
	logPath
	logStatus
	logBytes
	logDuration
	logClient
	logUpstream
	logUpstreamTook
	logShadow
	logLimit
	logWait
	logRate
	logKey
	logMasked
	logBanned
	logBanBegan
	logAlso
	logNewKeys
	logRepeated
	logList
	logRefunded
	logFallback
	logError
	logTraceID
	logSample
	standardFields // how many those are
)

// The fields that are written only if the configuration names them.
const (
	logProto logField = standardFields + iota
	logScheme
	logOwn
	logWaited
	logUserAgent
	logReferer
)

// logFieldNames are what lines and the configuration call the fields, in their order.
func logFieldNames() []string {
	return []string{
		"request_id", "route", "method", "host", "path", "status", "bytes", "duration_ms", "client", "upstream", "upstream_ms", "shadow",
		"limit", "wait_ms", "rate", "key", "masked", "banned", "ban_began", "also", "new_keys", "repeated", "list", "refunded", "fallback", "error",
		"trace_id", "sample", "proto", "scheme", "own_ms", "waited_ms", "user_agent", "referer",
	}
}

// logFields are some of the fields.
type logFields uint64

func (s logFields) has(f logField) bool { return s>>f&1 == 1 }

// allFields are all of them.
const allFields = ^logFields(0)

// An accessLog says what a configuration has written of each request.
type accessLog struct {
	format config.LogFormat
	fields logFields
	sample uint64 // of requests that passed one in so many
	agent  bool   // who sent it, or from where it came, is written
}

func newAccessLog(c config.AccessLog) accessLog {
	l := accessLog{format: c.Format, sample: uint64(c.Sample)}
	names := logFieldNames()
	for _, name := range c.Fields {
		if name == "standard" {
			l.fields |= 1<<standardFields - 1
		} else if i := slices.Index(names, name); i >= 0 {
			l.fields |= 1 << i
		}
	}
	l.agent = l.format == config.LogCombined || l.fields.has(logUserAgent) || l.fields.has(logReferer)
	return l
}

// isSampled reports whether x is one of those of which only some are written: it
// passed, and all went well.
func (l *accessLog) isSampled(x *exchange) bool {
	return l.sample > 1 && x.err == nil && x.fallback == "" && x.answer.status < 500 && outcomeOf(x) == outcomeAllowed
}

// noteAgent keeps what the log will show of the request's header, which does not
// outlive the handler.
func (x *exchange) noteAgent() {
	if x.generation.accessLog.agent {
		x.in.userAgent, x.in.referer = x.shownField("User-Agent"), x.shownField("Referer")
	}
}

// shownField is a field as the log shows it; "*" if a key is read from it.
func (x *exchange) shownField(name string) string {
	values := x.in.header.Values(name)
	if len(values) == 0 {
		return ""
	}
	if x.route != nil && x.route.reads.has(key.FoldHeader(name)) {
		return "*"
	}
	if name == "Referer" {
		return redactedURL(values[0])
	}
	return values[0][:min(len(values[0]), maxFieldLength)]
}
