package route

import (
	"errors"
	"fmt"
	"net/url"
)

// ErrQuery says that a query which something is read from can be read in two ways.
var ErrQuery = errors.New("query not acceptable")

// ParseQuery reads a query as it was sent. One in which servers find different
// parameters is ErrQuery.
func ParseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: a %% that is no escape, or a semicolon", ErrQuery)
	}
	return query, nil
}

// holds reports whether the query fulfils the conditions of b, on which e stands. A
// parameter that is there twice, or under a name that is folded, fulfils and breaks
// them at once, and so may one in a form; that is ErrQuery.
func (q *Request) holds(b *branch, e *entry) (bool, error) {
	if len(b.query) == 0 {
		return true, nil
	}
	if !e.IgnoresForms && q.Message.HasForm() {
		return false, fmt.Errorf("%w: it decides, beside a form in the body, in which some servers find the same", ErrQuery)
	}
	query, err := q.Message.ParsedQuery()
	if err != nil {
		return false, err
	}
	if err := b.unconfused(query); err != nil {
		return false, err
	}
	for _, c := range b.query {
		values := query[c.name]
		if len(values) > 1 {
			return false, fmt.Errorf("%w: a parameter that decides comes twice", ErrQuery)
		}
		if !c.holds(values) {
			return false, nil
		}
	}
	return true, nil
}

// unconfused is ErrQuery when a parameter may be taken for one of those that decide
// the route.
func (b *branch) unconfused(query url.Values) error {
	for name := range query {
		if found := b.names.Confused(nil, name); len(found) > 0 {
			return fmt.Errorf("%w: some servers take another parameter for %s", ErrQuery, found[0])
		}
	}
	return nil
}
