// Package respond generates Weir's own responses (refusals, problem documents,
// redirects, fixed responses) and the rate limit fields of forwarded responses.
// It is the only place that maps errors to status codes.
//
// It depends on decisions of package limiter and on header fields, but not on
// requests or response writers, so that every downstream can send its
// responses.
package respond

import (
	"net/http"
	"strings"
)

// A Field is a header field line.
type Field struct{ Name, Value string }

// A Header is the header of a response. Names are in canonical form.
type Header interface {
	Values(name string) []string
	// Set replaces a field by one line.
	Set(name, value string)
	// Add adds a line.
	Add(name, value string)
}

// A Response is a complete response. Weir's own responses have Content-Type, Content-Length and
// Cache-Control: no-store; configured responses have the necessary fields and the configured ones.
// The downstream adds only Date and connection fields, and omits the body for HEAD.
type Response struct {
	Status int
	Fields []Field
	Body   []byte
	// Constant is the number of the first Fields that may have been rendered in advance:
	// those of RateLimitFields.RefusalFields, or all of a refusal from a Cache; 0 if there
	// are none.
	Constant int
}

// CopyTo sets the fields of a in h under canonical names; existing fields of the same
// name are replaced. h does not share memory with a.
func (r Response) CopyTo(h map[string][]string) {
	for i, f := range r.Fields {
		name, value := http.CanonicalHeaderKey(f.Name), strings.Clone(f.Value)
		if i > 0 && r.Fields[i-1].Name == f.Name {
			h[name] = append(h[name], value)
			continue
		}
		h[name] = []string{value}
	}
}

// Field returns the value of the first field with this name, or "". Names are
// case-insensitive.
func (r Response) Field(name string) string {
	for _, f := range r.Fields {
		if http.CanonicalHeaderKey(f.Name) == http.CanonicalHeaderKey(name) {
			return f.Value
		}
	}
	return ""
}
