// Package respond words everything that Weir itself says to a client: refusals,
// problems and the quota fields on forwarded answers. It is the only place that
// picks a status.
//
// It knows limiter's decisions and header fields, but neither requests nor
// response writers, so that every downstream can send what it makes.
package respond

import (
	"net/http"
	"strings"
)

// A Field is one header line.
type Field struct{ Name, Value string }

// A Header is that of an answer, to be changed. Names are in canonical form.
type Header interface {
	Values(name string) []string
	// Set replaces a field by one line.
	Set(name, value string)
	// Add adds a line.
	Add(name, value string)
}

// An Answer is a whole response of ours. What Weir words has the fields
// Content-Type, Content-Length and Cache-Control: no-store; what the operator
// words has those that it needs and those that the operator wants. A downstream adds nothing but Date and
// its own connection fields, and leaves the body out when the method is HEAD.
type Answer struct {
	Status int
	Fields []Field
	Body   []byte
}

// Into sets every field of a in h, under canonical names; fields of the same name that
// h already had are replaced. h may outlive the memory of a.
func (a Answer) Into(h map[string][]string) {
	for i, f := range a.Fields {
		name, value := http.CanonicalHeaderKey(f.Name), strings.Clone(f.Value)
		if i > 0 && a.Fields[i-1].Name == f.Name {
			h[name] = append(h[name], value)
			continue
		}
		h[name] = []string{value}
	}
}

// Field is the value of the first field called name, or "". The case of name
// does not matter.
func (a Answer) Field(name string) string {
	for _, f := range a.Fields {
		if http.CanonicalHeaderKey(f.Name) == http.CanonicalHeaderKey(name) {
			return f.Value
		}
	}
	return ""
}
