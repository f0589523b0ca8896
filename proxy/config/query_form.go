package config

import (
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// A FormBesideQuery is the handling of a form in the body of a request on a route that
// reads from the query.
type FormBesideQuery string

// Values of FormBesideQuery.
const (
	RefuseForm FormBesideQuery = "refuse" // 400: some servers read query parameters from it
	IgnoreForm FormBesideQuery = "ignore" // the upstream reads only the query
)

// Besides returns the query parameters of r that a form in the body must not have as well:
// all, except those that an enforced limit counts by from the form.
func (r *Route) Besides() []string {
	if r.FormBesideQuery == IgnoreForm {
		return nil
	}
	var origins, counted []key.Origin
	for read := range r.Reads() {
		if read.Mode != Off && read.Purpose != ForBalance {
			origins = append(origins, read.Key.Origins()...)
		}
		if read.Mode == Enforce && read.Purpose == ForKey {
			counted = append(counted, read.Key.Origins()...)
		}
	}
	var names []string
	for _, o := range origins {
		if form, ok := o.Confused(); ok && !o.Source.IsBody() && !slices.Contains(counted, form) {
			names = append(names, o.Name)
		}
	}
	return names
}

// refusesForms returns the routes that refuse forms, but have methods for which forms are
// common.
func (c *Config) refusesForms() []string {
	var names []string
	for _, r := range c.Routes {
		posted := len(r.Match.Methods) == 0 || slices.ContainsFunc([]string{"POST", "PUT", "PATCH"}, func(m string) bool { return slices.Contains(r.Match.Methods, m) })
		if posted && (len(r.Besides()) > 0 || len(r.Match.Query) > 0 && r.FormBesideQuery == RefuseForm) {
			names = append(names, r.Name)
		}
	}
	return names
}

// formNote describes routes that refuse forms, and what to write instead; "" if there are
// none.
func (c *Config) formNote() string {
	names := c.refusesForms()
	if len(names) == 0 {
		return ""
	}
	return "a form in the body is refused with 400 at " + strings.Join(names, ", ") + ": keys, costs or matches are read from the query, and some servers find the same parameters in a form; write must_equal: form:NAME for a key, or form_beside_query: ignore for a route whose upstream reads the query alone"
}
