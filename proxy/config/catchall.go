package config

import "strings"

// An EncodedSlash says what becomes of a path with %2F.
type EncodedSlash string

// What can become of it.
const (
	RefuseSlash EncodedSlash = "refuse" // 400: some servers take it for a slash
	KeepSlash   EncodedSlash = "keep"   // it is part of its segment, here and for the upstream
)

// catchAlls warns of routes that take more, or less, than their paths seem to say:
// one without limits under which whatever is not quite a limited route's comes to an
// upstream, and one for "/", which is no beginning of other paths.
func (r *routes) catchAlls(forms []*routeForm, made []*Route) {
	i := 0
	for _, form := range forms {
		if form == nil {
			continue // a problem already
		}
		route := made[i]
		i++
		below, open := strings.CutSuffix(route.Match.Path, "*")
		switch {
		case open && len(route.Limits) == 0 && route.Upstream != nil:
			if limited := limitedBelow(route, below, made); limited != nil {
				r.warn(&form.Match.Path, "this route has no limits and takes what is not quite another's, such as other spellings of "+limited.Name+" at "+limited.Position.String(),
					"give it limits, name the paths that it is for, or write respond: {status: 404}")
			}
		case route.Match.Path == "/" && !catches(route.Match.Host, made):
			r.warn(&form.Match.Path, "this is / alone, and nothing below it", "write /* if all paths are meant")
		}
	}
}

// limitedBelow is a route with limits for paths below a catch-all, nil if there is
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

// catches reports whether some route is for all paths of host.
func catches(host string, made []*Route) bool {
	for _, r := range made {
		if r.Match.Path == "/*" && (r.Match.Host == "" || r.Match.Host == host) {
			return true
		}
	}
	return false
}
