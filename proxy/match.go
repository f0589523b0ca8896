package proxy

import (
	"cmp"
	"errors"
	"slices"
)

var (
	errNoRoute   = errors.New("no route matches")
	errNotMethod = errors.New("no route matches with this method")
)

// match learns the route of a request: errNoRoute when there is none, and
// errNotMethod when there would be one with another method. Its cost does not
// grow with the number of routes.
func (t *table) match(x *exchange) error {
	for s := range t.sites(x.host) {
		if s.match(x) {
			return nil
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
func (s *site) match(x *exchange) bool {
	var best *route
	var from, last *shelf
	for _, sh := range s.shelves {
		if !sh.admits(x.method, x.header) {
			continue
		}
		r := sh.paths.find(x.found, x.path)
		last = sh
		if r != nil && (best == nil || beats(r, sh, best, from)) {
			best, from = r, sh
		}
	}
	if best == nil {
		return false
	}
	if from != last {
		from.paths.find(x.found, x.path) // for the parameters, which the last look has overwritten
	}
	x.route = best
	return true
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
			if sh.method != "" && sh.admits(sh.method, x.header) && sh.paths.find(x.found, x.path) != nil {
				methods = append(methods, sh.method)
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}
