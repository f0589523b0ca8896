package config

import (
	"slices"
	"strings"
)

// An EncodedSlash is the handling of %2F in a path.
type EncodedSlash string

// Values of EncodedSlash.
const (
	RefuseSlash EncodedSlash = "refuse" // 400: some servers treat it as a slash
	KeepSlash   EncodedSlash = "keep"   // it is part of its segment, here and for the upstream
)

// catchAlls warns of routes that match more or fewer paths than their pattern suggests: a
// catch-all without limits that receives variations of paths with limits, "/", which
// matches only the path "/", and /api/, which does not match what is below it.
func (r *routes) catchAlls(forms []*routeForm, made []*Route) {
	i := 0
	for _, form := range forms {
		if form == nil {
			continue // already reported
		}
		route := made[i]
		i++
		below, open := strings.CutSuffix(route.Match.Path, "*")
		switch {
		case open && len(route.Limits) == 0 && route.Upstream != nil:
			if limited := limitedBelow(route, below, made); limited != nil {
				r.Warn(&form.Match.Path, "this route has no limits and takes what is not quite another's, such as other spellings of "+limited.Name+" at "+limited.Position.String(),
					"give it limits, name the paths that it is for, or write respond: {status: 404}")
			}
		case route.Match.Path == "/" && !catches(route.Match.Host, made):
			r.Warn(&form.Match.Path, "this is / alone, and nothing below it", "write /* if all paths are meant")
		case isBeginning(route) && !slices.ContainsFunc(made, func(o *Route) bool {
			return o != route && (strings.HasPrefix(o.Match.Path, route.Match.Path) || o.Match.Path+"/" == route.Match.Path)
		}):
			r.Warn(&form.Match.Path, "this is "+form.Match.Path+" alone, and nothing below it", "write "+form.Match.Path+"* if all paths below it are meant")
		}
	}
}

// isBeginning reports whether the path of a route is probably meant as the beginning of others, as in nginx: it ends with
// a slash, and the route is for all methods of one place.
func isBeginning(r *Route) bool {
	m := r.Match
	return len(m.Path) > 1 && strings.HasSuffix(m.Path, "/") && len(m.Params) == 0 && len(m.Methods) == 0 && r.Redirect == nil && r.Respond == nil
}

// limitedBelow returns a route with limits whose path is below a catch-all, nil if there is
// none.
func limitedBelow(all *Route, below string, made []*Route) *Route {
	for _, other := range made {
		overlap := all.Match.Host == "" || other.Match.Host == "" || all.Match.Host == other.Match.Host
		if other != all && overlap && len(other.Limits) > 0 && strings.HasPrefix(other.Match.Path, below) {
			return other
		}
	}
	return nil
}

// catches reports whether a route matches all paths of host.
func catches(host string, made []*Route) bool {
	for _, r := range made {
		if r.Match.Path == "/*" && (r.Match.Host == "" || r.Match.Host == host) {
			return true
		}
	}
	return false
}
