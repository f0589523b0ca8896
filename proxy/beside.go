package proxy

import (
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// besides are the parameters of the query that something is read from and for which
// a field of a form in the body may be taken: servlets, Rack and Go's FormValue mix
// the two. It is immutable once compiled.
type besides []string

// newBesides finds them: all that is read from the query, but for what a limit that
// refuses counts by the form.
func newBesides(from *config.Route) besides {
	if from.FormBesideQuery == config.IgnoreForm {
		return nil
	}
	var read, counted []key.Origin
	for _, l := range from.Lists {
		read = append(read, l.Key.Origins()...)
	}
	for _, l := range from.Limits {
		if l.Mode == config.Off {
			continue
		}
		read = append(read, l.Key.Origins()...)
		if l.Mode == config.Enforce {
			counted = append(counted, l.Key.Origins()...)
		}
		if l.Distinct != nil {
			read = append(read, l.Distinct.Origins()...)
		}
		if l.Cost != nil {
			read = append(read, l.Cost.From)
		}
	}
	var names besides
	for _, o := range read {
		if o.Source == key.Query && !slices.Contains(counted, key.Origin{Source: key.Form, Name: o.Name}) {
			names = append(names, o.Name)
		}
	}
	return names
}

// bears reports whether x has a body that some server reads as a form. A body without
// a type is one to Rack, if it is posted.
func (x *exchange) bears() bool {
	if x.length == 0 {
		return false
	}
	types := x.Header("Content-Type")
	for _, kind := range types {
		kind = strings.ToLower(kind)
		if strings.Contains(kind, "urlencoded") || strings.Contains(kind, "multipart") {
			return true
		}
	}
	return strings.EqualFold(x.method, "POST") && strings.Join(types, "") == ""
}
