package simulate

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-proxy/weir/proxy"
)

// A jsonReader parses lines that are JSON objects.
type jsonReader struct {
	names   *Names
	decoder jsontext.Decoder
	options []jsontext.Options
	buffer  bytes.Buffer

	// The state of the current line.
	record *record
	path   []byte            // names of the enclosing objects, each followed by a dot
	values [roleCount]string // of several fields with one role, that with the lowest rank
	ranks  [roleCount]uint8  // of these; noRank if the line has none
}

// noRank is more than all ranks.
const noRank = 255

// escape matches an escape. nginx writes \xHH unless it is configured with escape=json.
var escape = regexp.MustCompile(`\\(?:x[0-9A-Fa-f]{2}|.)`)

// parse parses r.line.
func (j *jsonReader) parse(r *record) lineKind {
	if bytes.Contains(r.line, []byte(`\x`)) {
		r.line = escape.ReplaceAllFunc(r.line, replaceHex)
	}
	j.buffer = *bytes.NewBuffer(r.line)
	j.decoder.Reset(&j.buffer, j.options...)
	j.record, j.path, j.values = r, j.path[:0], [roleCount]string{}
	for i := range j.ranks {
		j.ranks[i] = noRank
	}
	if j.decoder.PeekKind() != '{' || j.object() != nil {
		return kindMalformed
	}
	if _, err := j.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return kindMalformed
	}
	return j.finish()
}

// replaceHex returns \xHH as JSON, and other escapes as they are.
func replaceHex(escape []byte) []byte {
	b, err := hex.DecodeString(strings.TrimPrefix(string(escape), `\x`))
	switch {
	case err != nil || len(escape) < len(`\xHH`):
		return escape
	case b[0] >= utf8.RuneSelf:
		return b
	}
	return append([]byte(`\u00`), escape[2:]...)
}

// object reads an object.
func (j *jsonReader) object() error {
	if _, err := j.decoder.ReadToken(); err != nil {
		return err
	}
	outer := len(j.path)
	for j.decoder.PeekKind() == '"' {
		name, err := j.decoder.ReadValue()
		if err != nil {
			return err
		}
		j.path = append(j.path[:outer], j.text(name)...)
		if err := j.member(); err != nil {
			return err
		}
	}
	j.path = j.path[:outer]
	_, err := j.decoder.ReadToken()
	return err
}

// member reads the value of the member that path names.
func (j *jsonReader) member() error {
	found, wanted := j.names.byField[string(j.path)]
	kind := j.decoder.PeekKind()
	if kind == '{' {
		if j.path = append(j.path, '.'); j.names.prefixes[string(j.path)] {
			return j.object()
		}
	}
	if kind == '{' || !wanted {
		return j.decoder.SkipValue()
	}
	value, err := j.decoder.ReadValue()
	if err != nil {
		return err
	}
	switch kind {
	case '"':
		j.setField(found, scalar{text: j.text(value)})
	case '[': // Caddy logs the values of a field as an array; one of exactly one string is used
		inner := bytes.TrimSpace(value[1 : len(value)-1])
		if jsontext.Value(inner).Kind() == '"' && jsontext.Value(inner).IsValid(j.options...) {
			j.setField(found, scalar{text: j.text(inner)})
		}
	case 'n':
	default:
		j.setField(found, scalar{stringOf(value), true})
	}
	return nil
}

// text returns a string without its quotes, in the memory of the line.
func (j *jsonReader) text(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return stringOf(quoted[1 : len(quoted)-1])
	}
	r := j.record
	from := len(r.line)
	r.line, _ = jsontext.AppendUnquote(r.line, quoted) // it is valid but for its UTF-8
	return stringOf(r.line[from:])
}

// A scalar is a JSON string or, if bare, a number or a literal.
type scalar struct {
	text string
	bare bool
}

// setField uses the value of a field.
func (j *jsonReader) setField(found name, v scalar) {
	r, slot := j.record, found.role
	if slot == roleField {
		if v.text == "-" {
			v.text = "" // servers write - for an absent value
		}
		r.Fields = append(r.Fields, proxy.LoggedField{Origin: found.origin, Value: v.text})
		return
	}
	if found.rank >= j.ranks[slot] {
		return
	}
	switch slot {
	case roleEnd, roleStart:
		t, ok := r.parseTime(v.text)
		switch {
		case !ok:
			return
		case slot == roleStart:
			r.At = t
		default:
			r.ended = t
		}
	case roleStatus:
		status, ok := parseStatus(v.text)
		if !ok {
			return
		}
		r.Status = status
	case roleDuration:
		took, ok := r.parseDuration(found.unit, v)
		if !ok {
			return
		}
		r.Took = took
	}
	j.values[slot], j.ranks[slot] = v.text, found.rank
}

// has reports whether the line has a field with a role.
func (j *jsonReader) has(is role) bool { return j.ranks[is] != noRank }

// parseStatus parses a status.
func parseStatus(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n < 1000
}

// finish completes the request from the fields found.
func (j *jsonReader) finish() lineKind {
	r, v := j.record, &j.values
	j.setTarget()
	r.Own = j.has(roleOwn) && v[roleMessage] == "request"
	if r.Method == "" || r.Target == "" || !j.has(roleStart) && !j.has(roleEnd) ||
		j.has(roleOwn) && v[roleMessage] != "" && !r.Own {
		return kindOther
	}
	if !j.has(roleStart) {
		r.At = r.ended.Add(-r.Took)
	}
	if !strings.HasPrefix(r.Proto, "HTTP/") {
		r.Proto = ""
	}
	r.Host, r.Scheme, r.Client = v[roleHost], v[roleScheme], proxy.ParseForwardedFor(v[roleClient])
	r.Body, r.HasBody = v[roleBody], j.has(roleBody) && v[roleBody] != "-"
	if r.Own {
		j.finishOwn()
	}
	return kindRequest
}

// setTarget sets what the request asked for.
func (j *jsonReader) setTarget() {
	r, v := j.record, &j.values
	r.Method, r.Target, r.Proto = v[roleMethod], v[roleTarget], v[roleProto]
	if !j.has(roleTarget) {
		r.Target, r.Redacted = v[rolePath], !strings.Contains(v[rolePath], "?")
	}
	if method, target, proto, ok := splitRequestLine(v[roleRequest]); ok {
		r.Method, r.Proto = cmp.Or(r.Method, method), cmp.Or(r.Proto, proto)
		if !j.has(roleTarget) || j.ranks[roleTarget] > 0 && !strings.Contains(r.Target, "?") {
			r.Target, r.Redacted = target, false
		}
	}
	if query := strings.TrimPrefix(v[roleQuery], "?"); query != "" && !strings.Contains(r.Target, "?") {
		r.Target = r.join(r.Target, "?", query)
	}
	r.Redacted = r.Redacted && !j.has(roleQuery)
}

// finishOwn completes a request from the fields that only Weir's own log has; in others they have other
// meanings.
func (j *jsonReader) finishOwn() {
	r, v := j.record, &j.values
	r.Route, r.Listener, r.Limit, r.List = v[roleRoute], v[roleListener], v[roleLimit], v[roleList]
	r.Keys, r.CachedRefusal, r.Repeated, r.isSample = v[roleKeys], v[roleCached], v[roleRepeat] == "true", j.has(roleSample)
	r.Refunded, r.Failed = v[roleRefunded] == "true", strings.Contains(v[roleError], "forward request: ")
	if r.decided, _ = r.parseTime(v[roleDecided]); !r.decided.IsZero() { // by the clock that all nodes share
		r.Took = max(r.Took-max(r.decided.Sub(r.At), 0), 1) // 0 would be unknown
		r.At = r.decided
	}
	switch {
	case j.has(roleUpstream):
	case proxy.ByOperator(r.List, v[roleError]):
		r.Rejected = true
	case r.Failed || r.Limit != "" || r.List != "" && r.Status == http.StatusForbidden:
		r.Status = 0 // the status that the upstream would have sent is unknown
	default:
		r.Rejected = 400 <= r.Status && r.Status < 500 && r.Status != http.StatusTooManyRequests && r.Status != statusClientGone
	}
}

// statusClientGone is what Weir logs, as nginx does, for a client that did not wait for its answer.
const statusClientGone = 499

// stringOf returns b as a string that shares its memory. It is valid as long as b is unchanged.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// join returns texts as one, in the memory of the line.
func (r *record) join(texts ...string) string {
	from := len(r.line)
	for _, text := range texts {
		r.line = append(r.line, text...)
	}
	return stringOf(r.line[from:])
}

// decimal parses a decimal number of a unit, such as s or ms, without a sign or an exponent.
func (r *record) decimal(s, unit string) (time.Duration, bool) {
	d, err := time.ParseDuration(r.join(s, unit))
	return d, err == nil && strings.Trim(s, "0123456789.") == ""
}

// parseTime parses a time in the notations of servers: RFC 3339, also without T or zone, that of Apache and
// nginx (22/Nov/2026:11:05:47 +0000), or a number of seconds, milliseconds, microseconds or nanoseconds since
// 1970; the unit is the one that gives a time after 1973.
func (r *record) parseTime(s string) (time.Time, bool) {
	if !strings.ContainsAny(s, "-/") {
		return r.parseEpoch(s)
	}
	layouts := [...]string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00",
		"2006-01-02 15:04:05 Z07:00", time.DateTime, "2006-01-02T15:04:05"}
	if len(s) > 2 && s[2] == '/' {
		layouts[0] = "02/Jan/2006:15:04:05 -0700"
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseEpoch parses a number since 1970 in the unit that fits.
func (r *record) parseEpoch(s string) (time.Time, bool) {
	whole, _, _ := strings.Cut(s, ".")
	if len(whole) < 9 {
		return time.Time{}, false
	}
	units := [...]string{"s", "ms", "us", "ns"} // each for three more digits
	since, ok := r.decimal(s, units[min((len(whole)-9)/3, len(units)-1)])
	return time.Unix(0, int64(since)), ok
}

// parseDuration parses the duration of a request.
func (r *record) parseDuration(unit string, v scalar) (took time.Duration, ok bool) {
	switch {
	case unit != "":
	case v.bare && !strings.Contains(v.text, "."):
		unit = "ms" // Envoy logs milliseconds; Caddy logs seconds with a fraction
	case strings.ContainsAny(v.text, "hms"):
		took, err := time.ParseDuration(v.text)
		return took, err == nil && took >= 0
	default:
		unit = "s"
	}
	return r.decimal(v.text, unit)
}
