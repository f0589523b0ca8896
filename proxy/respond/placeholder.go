package respond

import (
	"encoding/json"
	"html"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// A placeholder is a part of an operator's text that is replaced in each
// response.
type placeholder uint8

const (
	literal placeholder = iota // the text itself
	retryAfter
	limitName
	requestID
	statusCode
	origin // only in fields
)

// String returns the placeholder as it is written.
func (p placeholder) String() string {
	return [...]string{"", "{retry_after}", "{limit}", "{request_id}", "{status}", "{origin}"}[p]
}

// substitutions are the values of placeholders in one response. Only the id may contain
// characters that must be escaped.
type substitutions [origin + 1]string

// anOrigin matches an origin (RFC 6454 section 6.2): https://app.example:8443.
var anOrigin = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9._-]{1,255}|` +
	`\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?$`)

// checkedOrigin returns the field Origin of a request, "" if it is no origin, or null, which many pages have.
func checkedOrigin(sent string) string {
	if !anOrigin.MatchString(sent) {
		return ""
	}
	return sent
}

// A template is an operator's text, split at its placeholders and escaped for its content type,
// once for all responses.
type template struct {
	parts  []part
	escape escaping // escapes the values
}

type part struct {
	kind placeholder
	text string // of a literal
}

// newTemplate parses text. Literals are passed through within.
func newTemplate(text string, within, escape escaping) template {
	t := template{escape: escape}
	for text != "" {
		first, at := literal, len(text)
		for p := retryAfter; p <= origin; p++ {
			if i := strings.Index(text, p.String()); i >= 0 && i < at {
				first, at = p, i
			}
		}
		if at > 0 {
			t.parts = append(t.parts, part{text: within(text[:at])})
		}
		if first != literal {
			t.parts = append(t.parts, part{kind: first})
		}
		text = text[at+len(first.String()):]
	}
	return t
}

// has reports whether t has a placeholder of this kind.
func (t *template) has(kind placeholder) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.kind == kind })
}

// append appends the text with its placeholders filled in. Values are not expanded
// again.
func (t *template) append(b []byte, s *substitutions) []byte {
	for i := range t.parts {
		switch p := &t.parts[i]; p.kind {
		case literal:
			b = append(b, p.text...)
		case requestID:
			b = append(b, t.escape(s[requestID])...)
		default:
			b = append(b, s[p.kind]...)
		}
	}
	return b
}

// An escaping returns s, escaped for a type of text.
type escaping func(s string) string

// escapingFor returns the escaping for a body of this type.
func escapingFor(contentType string) escaping {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return escapeJSON
	case kind == "text/html" || kind == "text/xml" || kind == "application/xml" || strings.HasSuffix(kind, "+xml"):
		return html.EscapeString
	}
	return unescaped
}

func unescaped(s string) string { return s }

// escapeJSON returns s, escaped for a JSON string.
func escapeJSON(s string) string {
	if isSafe(s) {
		return s
	}
	quoted, _ := json.Marshal(s) // a string can always be written
	return string(quoted[1 : len(quoted)-1])
}

// isSafe reports whether s needs no escaping in JSON and HTML: it is visible ASCII without \ " ' < > &.
func isSafe(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '\\' || c == '"' || c == '\'' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// A name of this form is valid both as a structured-field String and as a
// Token, so it stays valid whichever the draft requires.
var policyName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// A Policy describes one limit of a route for clients.
type Policy struct {
	// Name is unique in its route and matches [A-Za-z][A-Za-z0-9_.-]*.
	Name string
	Rate limiter.Rate
	// Expose is false for a hidden limit: it is not named in responses; only
	// Retry-After takes it into account.
	Expose bool
	// Limit groups policies. A policy with IsOther applies to some clients only, that have rates
	// or a plan of their own: in their responses it replaces the other policies of its Limit.
	Limit string
	// Concurrent is true if the rate's count bounds concurrent requests; its
	// window is not shown to clients.
	Concurrent bool
	IsOther    bool
}

// A policy is a compiled Policy.
type policy struct {
	Policy
	index      int    // among the policies of the route
	limitItem  string // `"phone";r=`
	policyItem string // `"phone";q=1;w=60`
	quota      int64
	window     int64 // whole seconds, rounded up, so that it never promises more than Rate
}

// compile compiles p and its item of RateLimit-Policy.
func compile(p Policy) policy {
	name := `"` + p.Name + `";` // it needs no escapes
	c := policy{Policy: p, limitItem: name + paramRemaining + "=", quota: p.Rate.Count, window: seconds(p.Rate.Window)}
	c.policyItem = name + paramQuota + "=" + strconv.FormatInt(c.quota, 10) + ";"
	if p.Concurrent {
		c.window = 1 // a concurrent permit may return at any moment
		c.policyItem += paramUnit + `="concurrent-requests"`
	} else {
		c.policyItem += paramWindow + "=" + strconv.FormatInt(c.window, 10)
	}
	return c
}

// withCount returns a copy of p with another count.
func (p *policy) withCount(count int64) *policy {
	other := p.Policy
	other.Rate.Count = count
	own := compile(other)
	own.index = p.index
	return &own
}

// remaining returns the remaining quota of o, between 0 and the quota; 0 for a
// refusal, even if some permits are left.
func (p *policy) remaining(o *limiter.Outcome) int64 {
	if !o.Allowed {
		return 0
	}
	return min(max(o.Remaining, 0), p.quota)
}

// reset returns the seconds until more permits are available, at most the
// window unless the key is banned; 0 if the next request need not wait.
func (p *policy) reset(o *limiter.Outcome) int64 {
	if o.Banned {
		return seconds(o.Wait)
	}
	return min(seconds(o.Wait), p.window)
}
