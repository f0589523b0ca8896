package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// stricter takes x to the route that a careless upstream would take it for, where
// that one is guarded by limits or lists and the one found is not: other letter
// case, a slash at the end or none, HEAD for GET, a method in small letters. Where
// both are guarded it is errTarget: neither is the stricter one. A path that is
// written so under a route, and a method that stands there, are what was meant.
//
// read is the path as lenient servers read it. On the usual path this allocates
// nothing, and its cost does not grow with the number of routes.
func (t *table) stricter(x *exchange, read string) error {
	f := t.folded
	if f == nil || f.guarded == 0 || f.guarded == 1 && x.route.guarded {
		return nil
	}
	method := x.method
	if !slices.Contains(x.route.methods, method) {
		method = meant(method)
	}
	if method != x.method {
		if err := t.retake(x, method); err != nil {
			return err
		}
	}
	if x.route.exact() || read == x.path && !f.differs(read) {
		return nil
	}
	return t.refold(x, method, read)
}

// meant is the method that a careless upstream acts on.
func meant(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	method = strings.ToUpper(method)
	if method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

// retake takes x to the route that method would lead to, if that is guarded. Its
// path must then be one that is not refused with that method either.
func (t *table) retake(x *exchange, method string) error {
	route := x.route
	other, err := t.look(x, method, x.path)
	switch {
	case err != nil:
		return err
	case other != nil && other.guarded:
		sent := x.method
		x.method = method
		_, err := t.unambiguous(x)
		x.method = sent
		return err
	}
	_ = t.find(x)
	x.route = route
	return nil
}

// refold takes x to the guarded route that stands where its path does in the folded
// table.
func (t *table) refold(x *exchange, method, read string) error {
	var few [8]string // so many need no allocation
	route, values := x.route, append(few[:0], x.found.URLParams.Values...)
	path := foldPath(read)
	for _, m := range []string{x.method, method} {
		other, err := t.folded.look(x, m, path)
		if err != nil {
			return err
		}
		if other == nil || other == route || !other.guarded {
			continue
		}
		if route.guarded || read != x.path {
			return errAnotherPath
		}
		route, values = other, other.capture(x.path)
		break
	}
	x.found.Reset()
	x.route, x.found.URLParams.Values = route, append(x.found.URLParams.Values, values...)
	return nil
}

// look is find for another method and another path; nil if there is no route. The
// exchange then has that route, and is otherwise as it was.
func (t *table) look(x *exchange, method, path string) (*route, error) {
	wasMethod, wasPath := x.method, x.path
	x.method, x.path = method, path
	err := t.find(x)
	x.method, x.path = wasMethod, wasPath
	if errors.Is(err, errNoRoute) || errors.Is(err, errNotMethod) {
		return nil, nil //nolint:nilnil // no route is no error here
	}
	return x.route, err
}

// exact reports whether r is for one path only.
func (r *route) exact() bool { return len(r.params) == 0 }

// capture is what the segments of path are for the parameters of r, as they were
// sent.
func (r *route) capture(path string) []string {
	segments := strings.Split(path[1:], "/")
	var values []string
	for i, at := range r.segments {
		switch {
		case at >= len(segments):
			values = append(values, "")
		case r.params[i] == "*":
			values = append(values, strings.Join(segments[at:], "/"))
		default:
			values = append(values, segments[at])
		}
	}
	return values
}
