package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// mostOthers is how many routes are told of that were not taken.
const mostOthers = 5

// match is the stage of that name, and tells of the routes that were not taken.
func (e *explainer) match() (string, error) {
	x, t := e.x, e.generation.table
	exact := t.find(x)
	plain := x.route
	err := t.match(x)
	if err != nil {
		e.Others = e.others(nil)
		return "", err
	}
	r := x.route
	from := e.generation.config.Routes[r.order]
	e.Route = &ExplainedRoute{
		Name: r.name, Position: from.Position.String(),
		Host: from.Match.Host, Methods: from.Match.Methods, Path: from.Match.Path,
		Lenient: exact != nil || plain != r,
	}
	e.Others = e.others(r)
	return r.name, nil
}

// others are the routes nearest to the request that are not taken: those first of
// which the fewest matchers fail, then in the order of the file.
func (e *explainer) others(taken *route) []ExplainedOther {
	type other struct {
		ExplainedOther
		fails int
	}
	var all []other
	for _, r := range e.generation.routes {
		if r == taken {
			continue
		}
		from := e.generation.config.Routes[r.order]
		because := r.misses(e.x, from.Match.Path)
		o := other{fails: len(because)}
		if len(because) == 0 {
			because = []string{"less specific than the route taken"}
			if taken == nil {
				because = []string{"the request is refused before"}
			}
		}
		o.ExplainedOther = ExplainedOther{Name: r.name, Position: from.Position.String(), Because: because}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b other) int { return cmp.Compare(a.fails, b.fails) })
	out := []ExplainedOther{}
	for _, o := range all[:min(len(all), mostOthers)] {
		out = append(out, o.ExplainedOther)
	}
	return out
}

// misses says of each matcher of r that fails on x what it wants; path is that of the
// route as it is written.
func (r *route) misses(x *exchange, path string) []string {
	var all []string
	if !hostMatches(r.host, x.host) {
		all = append(all, "host: want "+r.host)
	}
	one := paths{exact: map[string]*route{}}
	one.add(r.pattern, r)
	if one.find(chi.NewRouteContext(), x.path) == nil {
		all = append(all, "path: want "+path)
	}
	if len(r.methods) > 0 && !slices.Contains(r.methods, x.method) {
		all = append(all, "method: want "+strings.Join(r.methods, " or "))
	}
	for _, c := range r.headers {
		if !c.holds(x.header.Values(c.name)) {
			all = append(all, "header: want "+c.String())
		}
	}
	if len(r.query) > 0 && x.parseQuery() != nil {
		return append(all, "query: it can be read in two ways")
	}
	for _, c := range r.query {
		if !c.holds(x.query[c.name]) {
			all = append(all, "query: want "+c.String())
		}
	}
	return all
}

// hostMatches reports whether host matches a route's host, as table.sites does.
func hostMatches(want, host string) bool {
	want = strings.ToLower(want)
	if suffix, wild := strings.CutPrefix(want, "*"); wild {
		return suffix == "" || len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return want == "" || want == host
}

// String writes a condition for people.
func (c condition) String() string {
	if c.value == "*" {
		return c.name
	}
	return fmt.Sprintf("%s: %s", c.name, c.value)
}
