package route

import (
	"slices"
	"strings"
)

// Mismatches describes each condition of a pattern that q does not meet; number is the
// number of the entry. It returns nothing if all conditions are met.
func (t *Table[R]) Mismatches(number int, q *Request) []string {
	var all []string
	e := t.entries[number]
	if !e.hasHost(q.Host) {
		all = append(all, "host: want "+e.Host)
	}
	one := paths{exact: map[string]*entry{}}
	one.add(e.shape, e)
	if one.find(new(Request), q.Path) == nil {
		all = append(all, "path: want "+e.Path)
	}
	if len(e.Methods) > 0 && !slices.Contains(e.Methods, q.Method) {
		all = append(all, "method: want "+strings.Join(e.Methods, " or "))
	}
	if e.Scheme != "" && e.Scheme != q.Scheme {
		all = append(all, "scheme: want "+e.Scheme)
	}
	for _, c := range e.headers {
		if !c.holds(q.Message.Header(c.name)) {
			all = append(all, "header: want "+c.String())
		}
	}
	if len(e.query) == 0 {
		return all
	}
	query, err := q.Message.ParsedQuery()
	if err != nil {
		return append(all, "query: it can be read in two ways")
	}
	for _, c := range e.query {
		if !c.holds(query[c.name]) {
			all = append(all, "query: want "+c.String())
		}
	}
	return all
}

// hasHost reports whether host matches that of e, as index.candidates does.
func (e *entry) hasHost(host string) bool {
	want := strings.ToLower(e.Host)
	if suffix, wild := strings.CutPrefix(want, "*"); wild {
		return suffix == "" || len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return want == "" || want == host
}
