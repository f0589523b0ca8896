package config

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/view"
)

// commonName matches names of common limits. They have no dot, so none is counted as
// ROUTE.LIMIT is.
var commonName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// compileCommon compiles the limits at the top, each once.
func (r *routes) compileCommon(forms map[string]*limitForm) {
	r.common, r.naming = map[string]*Limit{}, map[string][]string{}
	l := &limits{routes: r, route: &routeForm{}}
	for _, name := range form.SortedKeys(forms) {
		f := forms[name]
		switch {
		case f.Named != "":
			l.Wrong(f, "want a mapping, got text", "write key: and rate: below it")
			continue
		case name == none || !commonName.MatchString(name):
			l.WrongName(f, form.Quote(name)+" is not a valid name for a limit of several routes", "begin with a letter, followed by letters, digits, _ or -")
		case l.Given(&f.Name):
			l.Wrong(&f.Name, "the limit is called "+name+" already", "leave it out")
		}
		f.Name = name
		r.common[name] = l.compile(f)
	}
}

// use returns a common limit as it applies to the route; nil after a problem. The route or
// defaults name it at pointer.
func (l *limits) use(pointer any, name string) *Limit {
	made := l.common[name]
	if made == nil {
		if l.main.Limits[name] == nil && l.Lacks(&l.main.Limits, name) {
			l.Wrong(pointer, "there is no limit "+form.Quote(name), cmp.Or(form.Near(name, form.SortedKeys(l.main.Limits)), "define it at the top, limits: {NAME: {key: client_ip, rate: 5/1m}}, or write a limit with key and rate here"))
		}
		return nil
	}
	here := *made
	here.Mode = l.mode(l.main.Limits[name])
	for read := range here.Reads() {
		for _, parameter := range params(read.Key) {
			if !slices.Contains(l.params, parameter) {
				l.Wrong(pointer, "the limit "+name+" counts by path:"+parameter+", which the path of route "+l.route.Name+" does not have", "name it only in routes that have it")
			}
		}
	}
	l.naming[name] = append(l.naming[name], l.route.Name)
	return &here
}

// link tells the limits of made which routes have one count with them.
func (r *routes) link(made []*Route) {
	for _, route := range made {
		for _, l := range route.Limits {
			if l.IsCommon() {
				l.Routes = r.naming[l.Name]
			}
		}
	}
}

// counters checks that no two limits count under one name: route a.b with limit c and
// route a with limit b.c would.
func (r *routes) counters() {
	first := map[string]*limitForm{}
	for _, c := range r.compiled {
		f, id := c.form, c.limit.ID
		other := first[id]
		switch {
		case id == "": // already reported
		case other == nil:
			first[id] = f
		case r.Given(&f.Was) || r.Given(&other.Was):
			if !r.Given(&f.Was) {
				f, other = other, f
			}
			r.Wrong(&f.Was, "the limit at "+r.Location(other).Position.String()+" counts as "+id, "leave was out, or take that limit out")
		case r.Valid(&f.Name):
			r.Wrong(&f.Name, "counts as "+id+", as the limit at "+r.Location(other).Position.String()+" does", "give the route or the limit another name")
		}
	}
}

// id returns the name under which a limit counts.
func (l *limits) id(f *limitForm) string {
	switch {
	case f.Name == "":
		return "" // already reported
	case l.token(&f.Was, f.Was):
		return f.Was
	}
	return view.LimitName(l.route.Name, f.Name)
}

// IsCommon reports whether several routes may have one count by l.
func (l *Limit) IsCommon() bool { return l.Route == "" }

// FullName returns the name of l in texts; see LimitName.
func (l *Limit) FullName() string { return view.LimitName(l.Route, l.Name) }

// Limits returns all limits in the order of the routes, each common one once: as it applies
// to the first of the routes where its mode is the strictest.
func (c *Config) Limits() []*Limit {
	var all []*Limit
	at := map[string]int{}
	rank := []Mode{Off, Shadow, Enforce}
	for _, r := range c.Routes {
		for _, l := range r.Limits {
			i, known := at[l.ID]
			switch {
			case !known:
				at[l.ID] = len(all)
				all = append(all, l)
			case slices.Index(rank, l.Mode) > slices.Index(rank, all[i].Mode):
				all[i] = l
			}
		}
	}
	return all
}
