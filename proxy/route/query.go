package route

import (
	"errors"
	"fmt"
	"net/url"
)

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
	return r.holdInQuery(b, e)
}

func (r *Request) holdInQuery(b *branch, e *entry) (bool, error) {
	if !e.IgnoresForms && r.Message.HasForm() {
		return false, fmt.Errorf("%w: the query selects the route, and the body is a form, in which some servers look for the parameter too", ErrQuery)
	}
	query, err := r.Message.ParsedQuery()
	if err != nil {
		return false, err
	}
	if err := b.checkConfusable(query); err != nil {
		return false, err
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

// checkConfusable returns ErrQuery if the name of a parameter is confusable with one
// that the conditions use.
func (b *branch) checkConfusable(query url.Values) error {
	for name := range query {
		if found := b.names.Confused(nil, name); len(found) > 0 {
			return fmt.Errorf("%w: some servers read another parameter as %s", ErrQuery, found[0])
		}
	}
	return nil
}
