package config

import (
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// unreachable finds routes that can never match. If two routes match the same request, the
// more specific one wins: by host, path, method, number of headers and query parameters,
// then the order of the files. So a route is unreachable only because of earlier ones with
// the same scheme, host, path, headers and query that match all its methods.
type unreachable struct {
	seen map[string][]*Route
}

// add returns an earlier route that makes this one unreachable, or nil.
func (u *unreachable) add(route *Route, shape string) *Route {
	if u.seen == nil {
		u.seen = map[string][]*Route{}
	}
	id := []string{route.Match.Scheme, route.Match.Host, shape}
	for _, name := range form.SortedKeys(route.Match.Headers) {
		id = append(id, name, route.Match.Headers[name])
	}
	id = append(id, "?")
	for _, name := range form.SortedKeys(route.Match.Query) {
		id = append(id, name, route.Match.Query[name])
	}
	place := strings.Join(id, "\x00") // no text of a file has a control character
	earlier := u.seen[place]
	u.seen[place] = append(earlier, route)

	var by *Route
	left := slices.Clone(route.Match.Methods)
	for _, e := range earlier {
		if len(route.Match.Methods) == 0 && len(e.Match.Methods) == 0 {
			return e
		}
		before := len(left)
		left = slices.DeleteFunc(left, func(m string) bool { return slices.Contains(e.Match.Methods, m) })
		if len(left) < before {
			by = e
		}
	}
	if len(route.Match.Methods) > 0 && len(left) == 0 {
		return by
	}
	return nil
}
