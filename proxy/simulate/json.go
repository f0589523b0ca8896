package simulate

import (
	"net/netip"
	"strings"
)

// maxNested is the maximum depth at which objects are searched.
const maxNested = 8

// A jsonReader parses lines that are JSON objects. It parses only what the names need, so
// it does not detect all syntax errors.
type jsonReader struct {
	names *Names
	clock clockReader

	// State of the current line.
	r      *record
	b      []byte
	at     int
	path   []byte // names of the enclosing objects, each followed by a dot
	ranks  [roleCount]uint8
	query  string
	client string
	asked  string // the request line
	own    bool   // it has a request id
	says   string // its message
	turned bool   // refused by Weir
	timed  bool   // it has a duration
}

// read parses r.line.
func (j *jsonReader) read(r *record) kind {
	*j = jsonReader{names: j.names, clock: j.clock, r: r, b: r.line, path: j.path[:0]}
	for i := range j.ranks {
		j.ranks[i] = 255
	}
	j.blank()
	if !j.is('{') || !j.object(0) {
		return malformed
	}
	j.blank()
	if j.at != len(j.b) {
		return malformed
	}
	return j.finish()
}

// finish sets the request from the fields found.
func (j *jsonReader) finish() kind {
	r := j.r
	if j.asked != "" {
		if method, target, proto, ok := requestLine(j.asked); ok {
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
	own := j.own && j.says == "request"
	if r.Method == "" || r.Target == "" || r.At.IsZero() && r.ended.IsZero() || j.own && j.says != "" && !own {
		return other
	}
	if j.query != "" && !strings.Contains(r.Target, "?") {
		r.line = append(append(append(r.line, r.Target...), '?'), j.query...)
		r.Target = text(r.line[len(r.line)-len(r.Target)-1-len(j.query):])
	}
	if j.ranks[roleQuery] != 255 {
		r.Redacted = false
	}
	if r.At.IsZero() {
		r.At = r.ended.Add(-r.Took)
	}
	if own && j.turned {
		r.Status = 0 // the outcome is unknown
	}
	if !strings.HasPrefix(r.Proto, "HTTP/") {
		r.Proto = ""
	}
	r.Client = address(j.client)
	return request
}

// address parses an address with an optional port.
func address(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr()
	}
	return netip.Addr{}
}

// is skips c, if it comes next.
func (j *jsonReader) is(c byte) bool {
	if j.at < len(j.b) && j.b[j.at] == c {
		j.at++
		return true
	}
	return false
}

func (j *jsonReader) blank() {
	for j.at < len(j.b) && (j.b[j.at] == ' ' || j.b[j.at] == '\t' || j.b[j.at] == '\r' || j.b[j.at] == '\n') {
		j.at++
	}
}

// object parses the members of an object after its opening brace.
func (j *jsonReader) object(depth int) bool {
	j.blank()
	if j.is('}') {
		return true
	}
	for {
		j.blank()
		member, ok := j.string()
		if !ok {
			return false
		}
		j.blank()
		if !j.is(':') {
			return false
		}
		j.blank()
		if !j.member(member, depth) {
			return false
		}
		j.blank()
		if j.is('}') {
			return true
		}
		if !j.is(',') {
			return false
		}
	}
}

// member parses the value of a member.
func (j *jsonReader) member(member []byte, depth int) bool {
	outer := len(j.path)
	j.path = append(j.path, member...)
	defer func() { j.path = j.path[:outer] }()
	found, wanted := j.names.known[string(j.path)]
	if j.at >= len(j.b) {
		return false
	}
	switch c := j.b[j.at]; {
	case c == '{':
		j.path = append(j.path, '.')
		if j.names.inner[string(j.path)] && depth < maxNested {
			j.at++
			return j.object(depth + 1)
		}
		return j.skip()
	case c == '[' && wanted: // Caddy logs the values of a field as a list
		return j.first(found)
	case c == '[':
		return j.skip()
	case c == '"':
		value, ok := j.string()
		if ok && wanted {
			j.take(found, scalar{text: text(value)})
		}
		return ok
	}
	from := j.at
	for j.at < len(j.b) && !ends(j.b[j.at]) {
		j.at++
	}
	if from == j.at {
		return false
	}
	if value := text(j.b[from:j.at]); wanted && value != "null" {
		j.take(found, scalar{value, true})
	}
	return true
}

// ends reports whether a number, or a word, ends at c.
func ends(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n'
}

// first parses a list with one string.
func (j *jsonReader) first(found name) bool {
	from := j.at
	j.at++
	j.blank()
	if j.at < len(j.b) && j.b[j.at] == '"' {
		value, ok := j.string()
		if !ok {
			return false
		}
		j.blank()
		if j.is(']') {
			j.take(found, scalar{text: text(value)})
			return true
		}
	}
	j.at = from
	return j.skip()
}

// string parses a string that begins with the next quote.
func (j *jsonReader) string() ([]byte, bool) {
	if !j.is('"') {
		return nil, false
	}
	from, escaped := j.at, false
	for j.at < len(j.b) {
		switch j.b[j.at] {
		case '\\':
			escaped = true
			j.at++
		case '"':
			value := j.b[from:j.at]
			j.at++
			if !escaped {
				return value, true
			}
			value, err := unescape(value)
			return value, err == nil
		}
		j.at++
	}
	return nil, false
}

// skip skips an object or a list.
func (j *jsonReader) skip() bool {
	for depth := 0; j.at < len(j.b); {
		switch j.b[j.at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				j.at++
				return true
			}
		case '"':
			if _, ok := j.string(); !ok {
				return false
			}
			continue
		}
		j.at++
	}
	return false
}
