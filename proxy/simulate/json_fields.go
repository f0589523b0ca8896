package simulate

import (
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A scalar is a JSON string or, if bare, a number or a literal.
type scalar struct {
	text string
	bare bool
}

// setField uses the value of a field.
func (j *jsonReader) setField(found name, v scalar) {
	r := j.record
	if found.role == roleField {
		if v.text == "-" {
			v.text = "" // servers write - for an absent value
		}
		r.Fields = append(r.Fields, proxy.LoggedField{Origin: found.origin, Value: v.text})
		return
	}
	if found.rank >= j.ranks[found.role] || found.role.isDuration() && j.hasDuration && found.rank > 0 {
		return
	}
	if j.setRole(found.role, v) {
		j.ranks[found.role] = found.rank
	}
}

// setRole uses the value of a role, and reports whether it is valid.
func (j *jsonReader) setRole(is role, v scalar) bool {
	r, value := j.record, v.text
	switch is {
	case roleEnd, roleStart:
		return j.setTime(is, value)
	case roleMethod:
		r.Method = value
	case roleTarget:
		r.Target, r.Redacted = value, false
	case rolePath:
		if j.ranks[roleTarget] != 255 {
			return false
		}
		r.Target, r.Redacted = value, !strings.Contains(value, "?")
	case roleQuery:
		j.query = strings.TrimPrefix(value, "?")
	case roleRequest:
		j.requestLine = value
	case roleHost:
		r.Host = value
	case roleScheme:
		r.Scheme = value
	case roleProto:
		r.Proto = value
	case roleClient:
		j.client = value
	case roleStatus:
		n, _, ok := parseNumber(value)
		r.Status = int(n)
		return ok && n < 1000
	case roleBody:
		r.Body, r.HasBody = value, value != "-"
	case roleOwn:
		j.hasRequestID = true
	case roleLimit:
		r.Limit = value
	case roleList:
		r.List = value
	case roleKeys:
		r.Keys = value
	case roleRoute:
		r.Route = value
	case roleListener:
		r.Listener = value
	case roleCached:
		r.CachedRefusal = value
	case roleDecided:
		r.decided, _ = j.times.parse(value)
	case roleSample:
		r.isSample = true
	case roleRepeat:
		r.Repeated = value == "true"
	case roleUpstream:
		r.forwarded = true
	case roleMessage:
		j.message = value
	default:
		took, ok := parseDuration(is, v)
		if ok {
			r.Took, j.hasDuration = took, true
		}
		return ok
	}
	return true
}

// setTime uses the time at which a request arrived or ended.
func (j *jsonReader) setTime(is role, value string) bool {
	t, ok := j.times.parse(value)
	if t.IsZero() && ok {
		t = time.Unix(-1, 0) // not the zero value, which is that of a line without a time
	}
	switch {
	case !ok:
	case is == roleStart:
		j.record.At = t
	default:
		j.record.ended = t
	}
	return ok
}

// parseDuration parses the duration of a request.
func parseDuration(is role, v scalar) (time.Duration, bool) {
	whole, billionths, ok := parseNumber(v.text)
	if !ok {
		took, err := time.ParseDuration(v.text)
		return max(took, 0), err == nil && is == roleDuration
	}
	unit := time.Second
	switch is {
	case roleMillis:
		unit = time.Millisecond
	case roleMicros:
		unit = time.Microsecond
	case roleNanos:
		unit = time.Nanosecond
	case roleDuration:
		if v.bare && !strings.Contains(v.text, ".") { // Envoy logs milliseconds; Caddy logs seconds with a fraction
			unit = time.Millisecond
		}
	}
	return time.Duration(whole)*unit + time.Duration(float64(billionths)/1e9*float64(unit)), true
}
