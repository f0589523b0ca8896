package route

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// An Entry is a pattern of a table, and what stands under it.
type Entry[R any] struct {
	Pattern
	Value R
}

// A Table finds what stands under the pattern that a request matches: the most specific
// one, by host, then path, then method, then number of conditions on headers and query,
// then order of the entries. It is immutable, and safe for concurrent use. A lookup
// allocates nothing on the usual path, and its cost does not grow with the number of
// entries.
type Table[R any] struct {
	index
	folded  *folded
	entries []*entry
	values  []R // of entries
}

// NewTable makes a table of entries. Of two that match exactly the same requests, the
// earlier one is found.
func NewTable[R any](entries []Entry[R]) *Table[R] {
	t := &Table[R]{index: newIndex()}
	for i, from := range entries {
		e := newEntry(i, from.Pattern)
		t.index.put(e, e.shape)
		t.entries, t.values = append(t.entries, e), append(t.values, from.Value)
	}
	t.folded = fold(t.entries)
	return t
}

// An index finds entries. Tables have two: of their patterns as they are, and folded.
type index struct {
	exact    map[string]*site // by host
	wildcard map[string]*site // "*.example.com" under ".example.com"
	any      *site
}

func newIndex() index {
	return index{exact: map[string]*site{}, wildcard: map[string]*site{}, any: new(site)}
}

// A site is the entries of one host, or of one pattern of hosts.
type site struct{ branches []*branch }

// A branch is the entries of a site that share their method and their conditions
// on headers and query. What remains to be compared is the path.
type branch struct {
	method  string // "" is any
	headers []condition
	query   []condition
	names   key.Names // of query's parameters
	paths   paths
}

// put puts an entry into the index under the shape of a path.
func (t *index) put(e *entry, shape string) {
	s := t.site(e.Host)
	if len(e.Methods) == 0 {
		s.branch("", e).paths.add(shape, e)
	}
	for _, method := range e.Methods {
		s.branch(method, e).paths.add(shape, e)
	}
}

// site returns the site of a host pattern, made when it is new.
func (t *index) site(host string) *site {
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

// branch returns the branch of a method and the conditions of e, made when it is new.
func (s *site) branch(method string, e *entry) *branch {
	for _, b := range s.branches {
		if b.method == method && slices.Equal(b.headers, e.headers) && slices.Equal(b.query, e.query) {
			return b
		}
	}
	b := &branch{method: method, headers: e.headers, query: e.query, paths: paths{exact: map[string]*entry{}}}
	for _, c := range b.query {
		b.names = b.names.With(c.name)
	}
	s.branches = append(s.branches, b)
	return b
}

// admits reports whether a request of this method with these fields may be
// matched here.
func (b *branch) admits(method string, m Message) bool {
	if b.method != "" && b.method != method {
		return false
	}
	for _, c := range b.headers {
		if !c.holds(m.Header(c.name)) {
			return false
		}
	}
	return true
}

// A condition on a header field or a parameter of the query: it is there, or has
// this value.
type condition struct{ name, value string } // value "*" is any

func (c condition) holds(values []string) bool {
	return len(values) > 0 && (c.value == "*" || slices.Contains(values, c.value))
}

// String writes a condition for people.
func (c condition) String() string {
	if c.value == "*" {
		return c.name
	}
	return c.name + ": " + c.value
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

// headerConditions are those on header fields, by their names in canonical form.
func headerConditions(written map[string]string) []condition {
	return conditions(written, http.CanonicalHeaderKey)
}
