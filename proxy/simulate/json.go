package simulate

import (
	"net/http"
	"net/netip"
	"strings"
)

// maxDepth is the maximum depth of nested objects that are parsed.
const maxDepth = 8

// A jsonReader parses lines that are JSON objects. It parses only what the names need, so that it
// does not detect every syntax error.
type jsonReader struct {
	names *Names
	times timeParser

	// The state of the current line.
	record       *record
	line         []byte
	pos          int
	path         []byte // names of the enclosing objects, each followed by a dot
	ranks        [roleCount]uint8
	query        string
	client       string
	requestLine  string // the request line
	hasRequestID bool   // the line has a request id
	message      string // the message
	hasDuration  bool   // the line has a duration
}

// parse parses r.line.
func (j *jsonReader) parse(r *record) lineKind {
	*j = jsonReader{names: j.names, times: j.times, record: r, line: r.line, path: j.path[:0]}
	for i := range j.ranks {
		j.ranks[i] = 255
	}
	j.skipSpace()
	if !j.accept('{') || !j.object(0) {
		return kindMalformed
	}
	j.skipSpace()
	if j.pos != len(j.line) {
		return kindMalformed
	}
	return j.finish()
}

// finish completes the request from the fields found.
func (j *jsonReader) finish() lineKind {
	r := j.record
	if j.requestLine != "" {
		if method, target, proto, ok := splitRequestLine(j.requestLine); ok {
			if r.Method == "" {
				r.Method = method
			}
			if j.ranks[roleTarget] == 255 || j.ranks[roleTarget] > 0 && !strings.Contains(r.Target, "?") {
				r.Target, r.Redacted = target, false
			}
			if r.Proto == "" {
				r.Proto = proto
			}
		}
	}
	own := j.hasRequestID && j.message == "request"
	if r.Method == "" || r.Target == "" || r.At.IsZero() && r.ended.IsZero() || j.hasRequestID && j.message != "" && !own {
		return kindOther
	}
	if j.query != "" && !strings.Contains(r.Target, "?") {
		r.line = append(append(append(r.line, r.Target...), '?'), j.query...)
		r.Target = stringOf(r.line[len(r.line)-len(r.Target)-1-len(j.query):])
	}
	if j.ranks[roleQuery] != 255 {
		r.Redacted = false
	}
	if r.At.IsZero() {
		r.At = r.ended.Add(-r.Took)
	}
	r.Own = own
	r.finishOwn()
	if !strings.HasPrefix(r.Proto, "HTTP/") {
		r.Proto = ""
	}
	r.Client = parseAddr(j.client)
	return kindRequest
}

// finishOwn completes a request from the fields that only Weir's own log has; in others they have other
// meanings.
func (r *record) finishOwn() {
	if r.Own && !r.decided.IsZero() { // by the clock that all nodes share
		r.Took -= min(max(r.decided.Sub(r.At), 0), r.Took)
		r.At = r.decided
	}
	switch {
	case !r.Own:
		r.Route, r.Listener, r.Limit, r.List, r.Keys, r.CachedRefusal, r.Repeated, r.isSample = "", "", "", "", "", "", false, false
	case r.forwarded:
	case r.Limit != "" || r.List != "" && r.Status == http.StatusForbidden:
		r.Status = 0 // the status that the upstream would have sent is unknown
	default:
		r.Rejected = 400 <= r.Status && r.Status < 500 && r.Status != http.StatusTooManyRequests && r.Status != statusClientGone
	}
}

// statusClientGone is what Weir logs, as nginx does, for a client that did not wait for its answer.
const statusClientGone = 499

// parseAddr parses an address with an optional port.
func parseAddr(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr()
	}
	return netip.Addr{}
}

// accept skips c if it is the next byte.
func (j *jsonReader) accept(c byte) bool {
	if j.pos < len(j.line) && j.line[j.pos] == c {
		j.pos++
		return true
	}
	return false
}

func (j *jsonReader) skipSpace() {
	for j.pos < len(j.line) && (j.line[j.pos] == ' ' || j.line[j.pos] == '\t' || j.line[j.pos] == '\r' || j.line[j.pos] == '\n') {
		j.pos++
	}
}

// object parses the members of an object after its opening brace.
func (j *jsonReader) object(depth int) bool {
	j.skipSpace()
	if j.accept('}') {
		return true
	}
	for {
		j.skipSpace()
		member, ok := j.string()
		if !ok {
			return false
		}
		j.skipSpace()
		if !j.accept(':') {
			return false
		}
		j.skipSpace()
		if !j.member(member, depth) {
			return false
		}
		j.skipSpace()
		if j.accept('}') {
			return true
		}
		if !j.accept(',') {
			return false
		}
	}
}

// member parses the value of a member.
func (j *jsonReader) member(member []byte, depth int) bool {
	outer := len(j.path)
	j.path = append(j.path, member...)
	defer func() { j.path = j.path[:outer] }()
	found, wanted := j.names.byField[string(j.path)]
	if j.pos >= len(j.line) {
		return false
	}
	switch c := j.line[j.pos]; {
	case c == '{':
		j.path = append(j.path, '.')
		if j.names.prefixes[string(j.path)] && depth < maxDepth {
			j.pos++
			return j.object(depth + 1)
		}
		return j.skip()
	case c == '[' && wanted: // Caddy logs the values of a field as an array
		return j.singleton(found)
	case c == '[':
		return j.skip()
	case c == '"':
		value, ok := j.string()
		if ok && wanted {
			j.setField(found, scalar{text: stringOf(value)})
		}
		return ok
	}
	from := j.pos
	for j.pos < len(j.line) && !ends(j.line[j.pos]) {
		j.pos++
	}
	if from == j.pos {
		return false
	}
	if value := stringOf(j.line[from:j.pos]); wanted && value != "null" {
		j.setField(found, scalar{value, true})
	}
	return true
}

// ends reports whether a number or a literal ends at c.
func ends(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n'
}

// singleton uses an array of exactly one string.
func (j *jsonReader) singleton(found name) bool {
	from := j.pos
	j.pos++
	j.skipSpace()
	if j.pos < len(j.line) && j.line[j.pos] == '"' {
		value, ok := j.string()
		if !ok {
			return false
		}
		j.skipSpace()
		if j.accept(']') {
			j.setField(found, scalar{text: stringOf(value)})
			return true
		}
	}
	j.pos = from
	return j.skip()
}

// string parses a string at the next byte.
func (j *jsonReader) string() ([]byte, bool) {
	if !j.accept('"') {
		return nil, false
	}
	from, escaped := j.pos, false
	for j.pos < len(j.line) {
		switch j.line[j.pos] {
		case '\\':
			escaped = true
			j.pos++
		case '"':
			value := j.line[from:j.pos]
			j.pos++
			if !escaped {
				return value, true
			}
			value, err := unescape(value)
			return value, err == nil
		}
		j.pos++
	}
	return nil, false
}

// skip skips an object or an array.
func (j *jsonReader) skip() bool {
	for depth := 0; j.pos < len(j.line); {
		switch j.line[j.pos] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				j.pos++
				return true
			}
		case '"':
			if _, ok := j.string(); !ok {
				return false
			}
			continue
		}
		j.pos++
	}
	return false
}
