package route

import (
	"iter"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
)

// A Request is what of a request decides under which pattern it is found: what was sent,
// the Target that Tidy has made of it, and, once a table was asked, the parameters of its
// path. It belongs to one goroutine. Reset makes it fit for the next request; what it has
// allocated is kept.
type Request struct {
	Sent
	Target
	Message Message

	found  *entry       // nil: none
	params *chi.Context // the parameters of the path, in order; nil before the first lookup
}

// A Message is what a request says beside where it goes. It is asked for what routes
// have conditions on, and for nothing else.
type Message interface {
	// Header returns all values of a field; its name is in canonical form.
	Header(name string) []string
	// ParsedQuery returns the parameters of the query, or ErrQuery.
	ParsedQuery() (url.Values, error)
	// HasForm reports whether there is a body that some server reads as a form.
	HasForm() bool
}

// Reset forgets the request.
func (q *Request) Reset() { *q = Request{params: q.params} }

// Param returns a parameter of the path, decoded; "" if nothing was found, or if there
// is none of that name.
func (q *Request) Param(name string) string {
	for known, value := range q.Params() {
		if known != name {
			continue
		}
		if text, err := url.PathUnescape(value); err == nil {
			return text
		}
	}
	return ""
}

// Params yields the parameters of the path, as they were sent, in order. The rest of
// the path that * stands for is called "*".
func (q *Request) Params() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if q.found == nil {
			return
		}
		values := q.params.URLParams.Values
		for i, name := range q.found.params[:min(len(q.found.params), len(values))] {
			if !yield(name, values[i]) {
				return
			}
		}
	}
}

// Keep makes the method, the host, the path and what Params yields last longer than the
// strings that q was made of. All else that q holds of them, it forgets.
func (q *Request) Keep() {
	q.Sent = Sent{Method: strings.Clone(q.Method)}
	q.Target = Target{Host: strings.Clone(q.Host), Path: strings.Clone(q.Path)}
	q.Message = nil
	if q.params == nil {
		return
	}
	for i, value := range q.params.URLParams.Values {
		q.params.URLParams.Values[i] = strings.Clone(value)
	}
}

// as is q for another method and another path: what find finds for those. The request
// is otherwise as it was.
func (q *Request) as(method, path string, find func(*Request) error) error {
	wasMethod, wasPath := q.Method, q.Path
	q.Method, q.Path = method, path
	err := find(q)
	q.Method, q.Path = wasMethod, wasPath
	return err
}
