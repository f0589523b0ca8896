package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	errNoRoute   = errors.New("no route matches")
	errNotMethod = errors.New("no route matches with this method")
)

// match learns the route of a request: errNoRoute when there is none, and
// errNotMethod when there would be one with another method; errQuery when the
// query decides and can be read in two ways; errTarget when an upstream could take
// the path for another route's. Its cost does not grow with the number of routes.
func (t *table) match(x *exchange) error {
	err := t.find(x)
	if strings.Contains(x.path, slash) && (err != nil || !x.route.keepsSlashes) {
		return fmt.Errorf("%w: a slash that is escaped in the path", errTarget)
	}
	if err != nil {
		return err
	}
	read, err := t.unambiguous(x)
	if err != nil {
		return err
	}
	return t.stricter(x, read)
}

// find is match that takes the path as it is.
func (t *table) find(x *exchange) error {
	x.route = nil
	for s := range t.sites(x.host) {
		if found, err := s.match(x); found || err != nil {
			return err
		}
	}
	if len(t.allowed(x)) > 0 {
		return errNotMethod
	}
	return errNoRoute
}

// sites yields those whose host matches, the most specific first.
func (t *table) sites(host string) func(yield func(*site) bool) {
	return func(yield func(*site) bool) {
		if s := t.exact[host]; s != nil && !yield(s) {
			return
		}
		for i := 1; i < len(host) && len(t.wildcard) > 0; i++ {
			if host[i] != '.' {
				continue
			}
			if s := t.wildcard[host[i:]]; s != nil && !yield(s) {
				return
			}
		}
		yield(t.any)
	}
}

// match looks on every shelf that admits the request and keeps the most
// specific route.
func (s *site) match(x *exchange) (bool, error) {
	var best *route
	var from, last *shelf
	for _, sh := range s.shelves {
		if !sh.admits(x.method, x.header) {
			continue
		}
		r := sh.paths.find(x.found, x.path)
		last = sh
		if r == nil || best != nil && !beats(r, sh, best, from) {
			continue
		}
		holds, err := x.holds(sh, r)
		if err != nil {
			return false, err
		}
		if holds {
			best, from = r, sh
		}
	}
	if best == nil {
		return false, nil
	}
	if from != last {
		from.paths.find(x.found, x.path) // for the parameters, which the last look has overwritten
	}
	x.route = best
	return true, nil
}

// holds reports whether the query fulfils the conditions of sh, on which r stands. A
// parameter that is there twice, or under a name that is folded, fulfils and breaks
// them at once, and so may one in a form; that is errQuery.
func (x *exchange) holds(sh *shelf, r *route) (bool, error) {
	if len(sh.query) == 0 {
		return true, nil
	}
	if !r.ignoresForms && x.bears() {
		return false, fmt.Errorf("%w: it decides, beside a form in the body, in which some servers find the same", errQuery)
	}
	if err := x.parseQuery(); err != nil {
		return false, err
	}
	if err := x.disguised(sh.names); err != nil {
		return false, err
	}
	for _, c := range sh.query {
		values := x.query[c.name]
		if len(values) > 1 {
			return false, fmt.Errorf("%w: a parameter that decides comes twice", errQuery)
		}
		if !c.holds(values) {
			return false, nil
		}
	}
	return true, nil
}

// beats reports whether route a of one shelf is more specific than b of another.
// Both shelves admit the request, so a longer method is its method and an empty
// one is any.
func beats(a *route, on *shelf, b *route, other *shelf) bool {
	return cmp.Or(
		cmp.Compare(a.depth, b.depth),
		cmp.Compare(len(other.method), len(on.method)),
		cmp.Compare(b.conditions, a.conditions),
		cmp.Compare(a.order, b.order),
	) < 0
}

// allowed lists the methods with which a request would match, sorted.
func (t *table) allowed(x *exchange) []string {
	var methods []string
	for s := range t.sites(x.host) {
		for _, sh := range s.shelves {
			if sh.method == "" || !sh.admits(sh.method, x.header) {
				continue
			}
			r := sh.paths.find(x.found, x.path)
			if r == nil {
				continue
			}
			if holds, err := x.holds(sh, r); holds && err == nil {
				methods = append(methods, sh.method)
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}
