package route

import (
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy/reuse"
)

// A Request holds the parts of an HTTP request that routing depends on: the request as it
// was sent, the normalized Target (set by Normalize), and the path parameters (set by
// Table.Find). It must not be used concurrently. Reset prepares it for the next request
// and keeps its allocations.
type Request struct {
	RawTarget
	Target
	Message Message

	found  *entry       // nil: none
	values []string     // the values of the parameters of found, in order
	tree   *chi.Context // the memory of a lookup in a prefixGroup; nil before the first
}

// A Message gives access to the header fields, the query and the body of a request.
// Only the parts that patterns have conditions on are read.
type Message interface {
	// Header returns all values of a field; name is in canonical form.
	Header(name string) []string
	// ParsedQuery returns the query parameters, or ErrQuery.
	ParsedQuery() (url.Values, error)
	// HasForm reports whether the body could be read as a form by some server.
	HasForm() bool
}

// Reset clears the request.
func (r *Request) Reset() { *r = Request{values: reuse.Memory(r.values), tree: r.tree} }

// Param returns a decoded path parameter; "" if no entry was found, or if it has no
// such parameter.
func (r *Request) Param(name string) string {
	for known, value := range r.Params() {
		if known != name {
			continue
		}
		if text, err := url.PathUnescape(value); err == nil {
			return text
		}
	}
	return ""
}

// Params yields the path parameters in order, as they were sent. The rest of the
// path that * matches is called "*".
func (r *Request) Params() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if r.found == nil {
			return
		}
		for i, name := range r.found.params[:min(len(r.found.params), len(r.values))] {
			if !yield(name, r.values[i]) {
				return
			}
		}
	}
}

// Keep copies the method, the version, the host, the path and the path parameters, so that they stay
// valid when the buffers of the request are reused. It clears everything else.
func (r *Request) Keep() {
	r.RawTarget = RawTarget{Method: strings.Clone(r.Method), Proto: strings.Clone(r.Proto)}
	r.Target = Target{Host: strings.Clone(r.Host), Path: strings.Clone(r.Path)} // nothing is forwarded any more
	r.Message = nil
	for i, value := range r.values {
		r.values[i] = strings.Clone(value)
	}
}

// withPath calls find with another method and path, and restores r afterwards.
func (r *Request) withPath(method, path string, find func(*Request) error) error {
	wasMethod, wasPath := r.Method, r.Path
	r.Method, r.Path = method, path
	err := find(r)
	r.Method, r.Path = wasMethod, wasPath
	return err
}

// ErrQuery reports an ambiguous query: servers could read different parameters
// from it.
var ErrQuery = errors.New("query not acceptable")

// ParseQuery parses a raw query. It returns ErrQuery if servers could read
// different parameters from it.
func ParseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: a %% that is not a valid escape, or a semicolon", ErrQuery)
	}
	return query, nil
}

// matchesQuery reports whether the query meets the conditions of b, the branch of e. The
// result is ErrQuery if that is ambiguous: a parameter is repeated, has a confusable name,
// or may come from a form as well.
func (r *Request) matchesQuery(b *branch, e *entry) (bool, error) {
	if len(b.query) == 0 {
		return true, nil
	}
	if !e.IgnoresForms && r.Message.HasForm() {
		return false, fmt.Errorf("%w: the query selects the route, and the body is a form, in which some servers "+
			"look for the parameter too", ErrQuery)
	}
	query, err := r.Message.ParsedQuery()
	if err != nil {
		return false, err
	}
	for name := range query {
		if found := b.names.Confused(nil, name); len(found) > 0 {
			return false, fmt.Errorf("%w: some servers read another parameter as %s", ErrQuery, found[0])
		}
	}
	for _, c := range b.query {
		values := query[c.name]
		if len(values) > 1 {
			return false, fmt.Errorf("%w: a repeated parameter in a condition of a route", ErrQuery)
		}
		if !c.holds(values) {
			return false, nil
		}
	}
	return true, nil
}
