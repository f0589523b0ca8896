package proxy

import (
	"cmp"
	"slices"
)

// maxOtherRoutes is the maximum number of routes listed that were not selected.
const maxOtherRoutes = 5

// match runs the stage match, and lists the routes that were not selected.
func (e *explainer) match() (string, error) {
	plain, exact := e.generation.table.FindExact(e.x.matchable())
	if err := e.generation.match(e.x); err != nil {
		e.Others = e.others(nil)
		return "", err
	}
	r := e.x.route
	e.Route = &ExplainedRoute{
		Name: r.Name, Position: r.Position.String(),
		Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path,
		Lenient: exact != nil || plain != r,
	}
	e.Others = e.others(r)
	return r.Name, nil
}

// others returns the routes closest to the request that were not selected: first those with the
// fewest matchers that fail, then in the order of the file.
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
		because := e.generation.table.Mismatches(r.order, e.x.matchable())
		o := other{fails: len(because)}
		if len(because) == 0 {
			because = []string{"less specific than the matched route"}
			if taken == nil {
				because = []string{"the request was refused before"}
			}
		}
		o.ExplainedOther = ExplainedOther{Name: r.Name, Position: r.Position.String(), Because: because}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b other) int { return cmp.Compare(a.fails, b.fails) })
	out := []ExplainedOther{}
	for _, o := range all[:min(len(all), maxOtherRoutes)] {
		out = append(out, o.ExplainedOther)
	}
	return out
}
