package simulate

import (
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A scalar is a JSON string or, if bare, a number or a word.
type scalar struct {
	text string
	bare bool
}

// take stores the value of a field.
func (j *jsonReader) take(found name, v scalar) {
	r := j.r
	if found.role == roleField {
		if v.text == "-" {
			v.text = "" // servers log "-" for missing values
		}
		r.Fields = append(r.Fields, proxy.LoggedField{Origin: found.origin, Value: v.text})
		return
	}
	if found.rank >= j.ranks[found.role] && found.role != roleRefused || found.role.isDuration() && j.timed && found.rank > 0 {
		return
	}
	if j.value(found.role, v) {
		j.ranks[found.role] = found.rank
	}
}

// value stores the value of a role, and reports whether it is valid.
func (j *jsonReader) value(is role, v scalar) bool {
	r, value := j.r, v.text
	switch is {
	case roleEnd, roleStart:
		return j.time(is, value)
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
		j.asked = value
	case roleHost:
		r.Host = value
	case roleScheme:
		r.Scheme = value
	case roleProto:
		r.Proto = value
	case roleClient:
		j.client = value
	case roleStatus:
		n, _, ok := number(value)
		r.Status = int(n)
		return ok && n < 1000
	case roleBody:
		r.Body, r.HasBody = value, value != "-"
	case roleOwn:
		j.own = true
	case roleRefused:
		j.turned = true
	case roleMessage:
		j.says = value
	default:
		took, ok := duration(is, v)
		if ok {
			r.Took, j.timed = took, true
		}
		return ok
	}
	return true
}

// time stores the time of a request or its end.
func (j *jsonReader) time(is role, value string) bool {
	t, ok := j.clock.read(value)
	switch {
	case !ok:
	case is == roleStart:
		j.r.At = t
	default:
		j.r.ended = t
	}
	return ok
}

// duration parses the duration of a request.
func duration(is role, v scalar) (time.Duration, bool) {
	whole, billionths, ok := number(v.text)
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
		if v.bare && !strings.Contains(v.text, ".") { // milliseconds in Envoy; Caddy logs seconds with a fraction
			unit = time.Millisecond
		}
	}
	return time.Duration(whole)*unit + time.Duration(float64(billionths)/1e9*float64(unit)), true
}
