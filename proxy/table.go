package proxy

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A table finds the route of a request: the most specific one that matches, by
// host, then path, then method, then number of header conditions, then order in
// the file. It is immutable.
type table struct {
	exact    map[string]*site // by host
	wildcard map[string]*site // "*.example.com" under ".example.com"
	any      *site
	folded   *folded // nil until it is made
}

func newTable() table {
	return table{exact: map[string]*site{}, wildcard: map[string]*site{}, any: new(site)}
}

// A site is the routes of one host, or of one pattern of hosts.
type site struct{ shelves []*shelf }

// A shelf is the routes of a site that share their method and their conditions
// on headers and query. What remains to be compared is the path.
type shelf struct {
	method  string // "" is any
	headers []condition
	query   []condition
	names   key.Names // of query's parameters
	paths   paths
}

// A condition on a header field or a parameter of the query: it is there, or has
// this value.
type condition struct{ name, value string } // value "*" is any

// add puts a route into the table. An earlier route that matches exactly the
// same requests stays.
func (t *table) add(r *route, m config.Match) {
	r.pattern, r.params = shape(m.Path)
	r.segments = segments(r.pattern)
	r.depth = depth(r.pattern)
	r.host, r.methods = m.Host, m.Methods
	r.headers, r.query = conditions(m.Headers, http.CanonicalHeaderKey), conditions(m.Query, strings.Clone)
	r.conditions = len(r.headers) + len(r.query)
	t.put(r, r.pattern)
}

// put puts a route into the table under a pattern.
func (t *table) put(r *route, pattern string) {
	s := t.site(r.host)
	if len(r.methods) == 0 {
		s.shelf("", r.headers, r.query).paths.add(pattern, r)
	}
	for _, method := range r.methods {
		s.shelf(method, r.headers, r.query).paths.add(pattern, r)
	}
}

// site returns the site of a host pattern, made when it is new.
func (t *table) site(host string) *site {
	host = strings.ToLower(host)
	if host == "" || host == "*" {
		return t.any
	}
	sites, name := t.exact, host
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		sites, name = t.wildcard, suffix
	}
	if sites[name] == nil {
		sites[name] = new(site)
	}
	return sites[name]
}

// shelf returns the shelf of a method and conditions, made when it is new.
func (s *site) shelf(method string, headers, query []condition) *shelf {
	for _, sh := range s.shelves {
		if sh.method == method && slices.Equal(sh.headers, headers) && slices.Equal(sh.query, query) {
			return sh
		}
	}
	sh := &shelf{method: method, headers: headers, query: query, paths: paths{exact: map[string]*route{}}}
	for _, c := range query {
		sh.names = sh.names.With(c.name)
	}
	s.shelves = append(s.shelves, sh)
	return sh
}

// admits reports whether a request of this method with these fields may be
// matched here.
func (sh *shelf) admits(method string, header fields) bool {
	if sh.method != "" && sh.method != method {
		return false
	}
	for _, c := range sh.headers {
		if !c.holds(header.Values(c.name)) {
			return false
		}
	}
	return true
}

func (c condition) holds(values []string) bool {
	return len(values) > 0 && (c.value == "*" || slices.Contains(values, c.value))
}

// conditions are those written, each under its name as spelled by spelling.
func conditions(written map[string]string, spelling func(string) string) []condition {
	var all []condition
	for name, value := range written {
		all = append(all, condition{spelling(name), value})
	}
	slices.SortFunc(all, func(a, b condition) int { return cmp.Compare(a.name, b.name) })
	return all
}
