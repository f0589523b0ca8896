package proxy

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
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
	logUsed
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
	numLogFields
)

// String returns the name of a field in lines and in the configuration.
func (f logField) String() string {
	return [...]string{
		"request_id", "route", "method", "host", "path", "status", "bytes", "duration_ms", "client", "upstream", "upstream_ms", "shadow",
		"limit", "wait_ms", "rate", "key", "masked", "banned", "ban_began", "also", "cached_refusal", "new_keys", "repeated", "list", "refunded", "fallback", "error",
		"keys", "decided_at", "trace_id", "sample", "listener", "challenge", "used", "proto", "scheme", "own_ms", "waited_ms", "user_agent", "referer",
	}[f]
}

// logFields is a set of fields.
type logFields uint64

func (l logFields) has(f logField) bool { return l>>f&1 == 1 }

// allFields is the set of all fields.
const allFields = ^logFields(0)

// A logLine is a line that is written, with the fields that it may have.
type logLine struct {
	*zerolog.Event
	logFields
}

// text writes a field.
func (l logLine) text(f logField, s string) {
	if l.has(f) {
		l.Str(f.String(), s)
	}
}

// given writes a field, unless it is empty.
func (l logLine) given(f logField, s string) {
	if s != "" {
		l.text(f, s)
	}
}

// flag writes a field that is true.
func (l logLine) flag(f logField) {
	if l.has(f) {
		l.Bool(f.String(), true)
	}
}

// ms writes d in milliseconds.
func (l logLine) ms(f logField, d time.Duration) {
	if l.has(f) {
		l.Float64(f.String(), float64(d.Microseconds())/1000)
	}
}

// An accessLog is the compiled configuration of the access log.
type accessLog struct {
	format         config.LogFormat
	fields         logFields
	sample         uint64 // one of this many allowed requests is written; 0 or 1 for all
	needsUserAgent bool   // User-Agent or Referer is written
}

func newAccessLog(c config.AccessLog) accessLog {
	l := accessLog{format: c.Format, sample: uint64(c.Sample)}
	for _, name := range c.Fields {
		if name == "standard" {
			l.fields |= 1<<standardFields - 1
		}
		for f := range numLogFields {
			if f.String() == name {
				l.fields |= 1 << f
			}
		}
	}
	l.needsUserAgent = l.format == config.LogCombined || l.fields.has(logUserAgent) || l.fields.has(logReferer)
	return l
}

// isSampled reports whether x belongs to the requests of which only a sample is written: it was
// allowed, and there was no error.
func (l *accessLog) isSampled(x *exchange) bool {
	return l.sample > 1 && x.Err == nil && x.Fallback == "" && x.response.status < 500 && outcomeOf(x) == decisions.Passed
}

// saveUserAgent stores the User-Agent and Referer for the log, if it has them, because the request's header
// does not outlive the handler.
func (x *exchange) saveUserAgent() {
	if !x.generation.accessLog.needsUserAgent {
		return
	}
	x.in.userAgent, x.in.referer = x.redactedField("User-Agent"), x.redactedField("Referer")
}

// redactedField returns the value of a header field for the log: "*" if a key is read from the field, or if it is the URL
// of another page and the path has what is hidden, otherwise the redacted or truncated value.
func (x *exchange) redactedField(name string) string {
	values := x.in.header.Values(name)
	if len(values) == 0 {
		return ""
	}
	if r := x.route; r != nil && (r.readFields.has(key.FoldHeader(name)) || name == "Referer" && (len(r.keyParams) > 0 || r.redactsPaths())) {
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
	_, _ = r.Lines.Write(append(b, '\n')) // the writer counts the lines that it drops
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

// The field keys of a line has what a Replay of the log needs of the keys by which the limits of the
// route count: the name of each key and 8 characters of a hash, separated by spaces.
//
//	phone=q83vEjRW pair=Zm9vYmFy
//
// The hash is base64url of the 6 bytes that the field key has in hexadecimal (redactor.key). A key that
// the rest of the line shows, such as the client's whole address, is left out. A hash of "-" means
// that the request had no such key, so that its limits did not apply; "-" alone means that no limit
// applied, because of a bypass list or a preflight. A key with overridden rates has a tag behind its
// hash, pair=Zm9vYmFy*c4, by which it is found among the overrides of a configuration. A country has its code
// instead of a hash, country=DE, because it identifies nobody. The plan under a limit is an entry
// plan:quota=pro, or plan:quota=- if the limit's own rates applied, and the price for a budget
// price:sms=0.075, or the row of a model, price:models=gpt-4o. For costs that are known afterwards see usage.go.
const absentKey = "-"

// writeKeys writes the field keys.
func (x *exchange) writeKeys(e logLine) {
	if x.route == nil || len(x.route.Active) == 0 || !e.has(logKeys) {
		return
	}
	if x.Exempt {
		e.Str("keys", absentKey)
		return
	}
	var space [256]byte
	if b := x.appendKeys(space[:0]); len(b) > 0 {
		e.Bytes("keys", b)
	}
}

// appendKeys appends the keys of x that the rest of its line does not show.
func (x *exchange) appendKeys(b []byte) []byte {
	for i := range x.extracted.keys {
		k := &x.extracted.keys[i]
		if !slices.Contains(x.route.loggedKeys, k.Spec) {
			continue
		}
		b = appendEntry(b, "", k.Spec.Name)
		if k.Skip {
			b = append(b, absentKey...)
			continue
		}
		if k.Spec.Part.Kind == key.Country && isCountry(k.Text) {
			b = append(b, k.Text...)
			continue
		}
		id := x.generation.redact.keyBytes(k.Key)
		b = base64.RawURLEncoding.AppendEncode(b, id[:])
		if x.route.overrides(k) {
			b = append(append(b, '*'), overrideTag(k.Key)...)
		}
	}
	return x.appendUsage(x.appendPrices(x.appendPlans(b)))
}

// appendEntry begins an entry of the field keys.
func appendEntry(b []byte, prefix, name string) []byte {
	if len(b) > 0 {
		b = append(b, ' ')
	}
	return append(append(append(b, prefix...), name...), '=')
}

// isCountry reports whether text is the code of a country, DE, or that of numbers without one. No hash is as short.
func isCountry(text string) bool {
	isUpper := func(c byte) bool { return 'A' <= c && c <= 'Z' }
	return len(text) == 2 && isUpper(text[0]) && isUpper(text[1]) || text == "001"
}

// planPrefix begins the name of a limit in an entry that has the plan under it.
const planPrefix = "plan:"

// appendPlans appends the plan under each limit that has plans.
func (x *exchange) appendPlans(b []byte) []byte {
	for _, l := range x.route.Active {
		if l.ByPlan == nil {
			continue
		}
		b = appendEntry(b, planPrefix, l.Name)
		b = append(b, cmp.Or(x.planOf(l), absentKey)...)
	}
	return b
}

// pricePrefix begins the name of a list of prices in an entry that has the price of the request.
const pricePrefix = "price:"

// appendPrices appends what the request costs by the prices of budgets.
func (x *exchange) appendPrices(b []byte) []byte {
	for i, l := range x.route.Active {
		_, p := l.Charges()
		isAlike := func(other *limit.Limit) bool {
			_, o := other.Charges()
			return o == p
		}
		if p == nil || slices.ContainsFunc(x.route.Active[:i], isAlike) {
			continue
		}
		k := slices.IndexFunc(x.extracted.keys, func(k limit.Key) bool { return k.Spec == p.Key })
		if k < 0 {
			continue
		}
		price, _ := x.extracted.keys[k].Price(p)
		text := key.FormatAmount(price.Amount, p.Decimals)
		if p.ByModel() {
			text = cmp.Or(price.Prefix, absentKey)
		}
		b = append(appendEntry(b, pricePrefix, p.Name), text...)
	}
	return b
}

// overrides reports whether a limit of r has rates of its own for a key.
func (r *route) overrides(k *limit.Key) bool {
	return slices.ContainsFunc(r.Active, func(l *limit.Limit) bool {
		_, found := l.ByKey[k.Key]
		return found && l.Key.Name == k.Spec.Name // limits have keys of their own for one origin
	})
}

// overrideTag returns what tells a key with overridden rates from the others: too little to tell which of
// all keys it is.
func overrideTag(k limiter.Key) string { return hex.EncodeToString(k[len(k)-1:]) }

// setLoggedKeys sets the keys of r that the field keys has: those that its limits read, and of which the rest
// of a line does not show all. Costs are not logged; prices and plans have entries of their own.
func (g *generation) setLoggedKeys(r *route) {
	for _, l := range r.Active {
		for _, read := range l.Reads() {
			s := read.Key
			switch read.Purpose {
			case config.ForPrice, config.ForCost, config.ForPlan:
				continue
			}
			if !slices.Contains(r.loggedKeys, s) && !g.logShows(s) && !strings.ContainsAny(s.Name, " =") {
				r.loggedKeys = append(r.loggedKeys, s)
			}
		}
	}
}

// logShows reports whether lines show all that a key is read from.
func (g *generation) logShows(s *key.Spec) bool {
	log := g.accessLog.fields
	for _, o := range s.Origins() {
		if o.Source.IsAddress() {
			if !log.has(logClient) || g.config.Privacy.LogClient != config.ClientFull {
				return false
			}
		} else if o.Source.IsNamed() || !log.has(logHost) { // what has no name is the host
			return false
		}
	}
	return true
}

// A loggedKeys is the field keys of a line; see writeKeys.
type loggedKeys string

// find returns what the line has of a key: its hash, or "-", and its tag if it has one.
func (l loggedKeys) find(name string) (hash, tag string, found bool) {
	for one := range strings.SplitSeq(string(l), " ") {
		if text, is := strings.CutPrefix(one, name); is && strings.HasPrefix(text, "=") {
			hash, tag, _ = strings.Cut(text[1:], "*")
			return hash, tag, true
		}
	}
	return "", "", false
}

// plan returns the name of the plan under a limit, "" if its own rates applied.
func (l loggedKeys) plan(of *limit.Limit) (name string, found bool) {
	if l == "" {
		return "", false
	}
	name, _, found = l.find(planPrefix + of.Name)
	return strings.TrimPrefix(name, absentKey), found
}

// price returns what the request costs by p, which may have another price for the same model.
func (l loggedKeys) price(p *config.Prices) (price key.Price, found bool) {
	text, _, found := l.find(pricePrefix + p.Name)
	if !found || p.ByModel() {
		price, _ = p.Table.Of(text, "")
		return price, found
	}
	amount, err := key.ParseAmount(text, p.Decimals)
	return key.Price{Amount: amount}, err == nil
}

// hasNone reports whether no limit applied to the request.
func (l loggedKeys) hasNone() bool { return l == absentKey }

// parseLogKey returns the key whose first bytes are those of a hash of the field keys. The others are 0.
func parseLogKey(hash string) (k limiter.Key, ok bool) {
	if len(hash) != base64.RawURLEncoding.EncodedLen(logKeyBytes) {
		return k, false
	}
	_, err := base64.RawURLEncoding.Decode(k[:logKeyBytes], []byte(hash))
	return k, err == nil
}

// logName returns the value of the field key of a key of which only the first bytes are known.
func logName(k limiter.Key) string { return hex.EncodeToString(k[:logKeyBytes]) }
