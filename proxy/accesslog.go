package proxy

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
)

// A logField is one field of a line of the access log.
type logField uint

// The fields of the access log. Those up to standardFields are written by default.
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
	logUpstreamMS
	logShadow
	logLimit
	logWaitMS
	logRate
	logKey
	logMasked
	logBanned
	logBanBegan
	logAlso
	logCachedRefusal
	logNewKeys
	logRepeated
	logList
	logRefunded
	logFallback
	logError
	logKeys
	logDecidedAt
	logTraceID
	logSample
	logListener
	logChallenge
	standardFields // the number of default fields
)

// The fields that are written only if the configuration names them.
const (
	logProto logField = standardFields + iota
	logScheme
	logOwnMS
	logWaitedMS
	logUserAgent
	logReferer
)

// logFieldNames returns the names of the fields in lines and in the configuration, indexed by
// logField.
func logFieldNames() []string {
	return []string{
		"request_id", "route", "method", "host", "path", "status", "bytes", "duration_ms", "client", "upstream", "upstream_ms", "shadow",
		"limit", "wait_ms", "rate", "key", "masked", "banned", "ban_began", "also", "cached_refusal", "new_keys", "repeated", "list", "refunded", "fallback", "error",
		"keys", "decided_at", "trace_id", "sample", "listener", "challenge", "proto", "scheme", "own_ms", "waited_ms", "user_agent", "referer",
	}
}

// logFields is a set of fields.
type logFields uint64

func (l logFields) has(f logField) bool { return l>>f&1 == 1 }

// allFields is the set of all fields.
const allFields = ^logFields(0)

// An accessLog is the compiled configuration of the access log.
type accessLog struct {
	format         config.LogFormat
	fields         logFields
	sample         uint64 // one of this many allowed requests is written; 0 or 1 for all
	needsUserAgent bool   // User-Agent or Referer is written
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
	l.needsUserAgent = l.format == config.LogCombined || l.fields.has(logUserAgent) || l.fields.has(logReferer)
	return l
}

// isSampled reports whether x belongs to the requests of which only a sample is written: it was
// allowed, and there was no error.
func (l *accessLog) isSampled(x *exchange) bool {
	return l.sample > 1 && x.err == nil && x.fallback == "" && x.response.status < 500 && outcomeOf(x) == decisions.Passed
}

// saveUserAgent stores the User-Agent and Referer for the log, because the request's header does not
// outlive the handler.
func (x *exchange) saveUserAgent() {
	x.in.userAgent, x.in.referer = x.redactedField("User-Agent"), x.redactedField("Referer")
}

// redactedField returns the value of a header field for the log: "*" if a key is read from the field,
// otherwise the redacted or truncated value.
func (x *exchange) redactedField(name string) string {
	values := x.in.header.Values(name)
	if len(values) == 0 {
		return ""
	}
	if x.route != nil && x.route.readFields.has(key.FoldHeader(name)) {
		return "*"
	}
	if name == "Referer" {
		return redactedURL(values[0])
	}
	return values[0][:min(len(values[0]), maxFieldLength)]
}

// loggedResets is the maximum number of log lines per second for HTTP/2 requests that were reset by
// their clients. Such a request costs a client almost nothing, and a line for each would cost more
// than the request. The others are only counted.
const loggedResets = 10

// A logSampler limits events to a number per second.
type logSampler struct {
	perSecond int

	mu     sync.Mutex // guards what follows
	second int64
	passed int
}

// allow reports whether an event at now is within the limit.
func (s *logSampler) allow(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.passed = second, 0
	}
	s.passed++
	return s.passed <= s.perSecond
}

// combined writes x in the combined log format of NCSA, Apache and nginx: the client's address, two
// user names that are always "-", the time of the request, its request line without the query,
// status, bytes, Referer and User-Agent.
//
//	192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET /a HTTP/1.1" 200 123 "-" "curl/8"
func (r *recorder) combined(x *exchange) {
	var space [512]byte
	b := append(space[:0], cmp.Or(x.generation.redact.client(x), "-")...)
	b = x.began.UTC().AppendFormat(append(b, " - - ["...), "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendEscaped(b, x.request.Method)
	b = append(b, ' ')
	b = appendEscaped(b, cmp.Or(x.redactedPath(), "-"))
	b = append(b, ' ')
	b = append(b, cmp.Or(x.request.Proto, "HTTP/1.1")...)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(x.response.status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, x.response.bytes, 10)
	for _, field := range [...]string{x.in.referer, x.in.userAgent} {
		b = append(b, ` "`...)
		b = appendEscaped(b, cmp.Or(field, "-"))
		b = append(b, '"')
	}
	_, _ = r.lines.Write(append(b, '\n')) // the writer counts the lines that it drops
}

// appendEscaped appends s with characters that would end the field or the line escaped as \xHH, as
// nginx does.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\':
			b = append(b, '\\', 'x', hex[c>>4], hex[c&0xf])
		default:
			b = append(b, c)
		}
	}
	return b
}
