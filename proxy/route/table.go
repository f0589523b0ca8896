package route

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// An Entry is a pattern and its value.
type Entry[R any] struct {
	Pattern
	Value R
}

// A Table maps patterns to values and finds the most specific pattern of a request: by
// host, then path, then method, then number of conditions on scheme, header fields and
// query, then order of the entries. It is immutable and safe for concurrent use. A lookup
// normally does not allocate, and its cost does not grow with the number of entries.
type Table[R any] struct {
	index
	folded  *folded
	entries []*entry
	values  []R // of entries
}

// NewTable builds a table. Of two entries that match exactly the same requests, the
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

// An index finds entries. A table has two: one of the patterns as written, one of the
// folded patterns.
type index struct {
	exact    map[string]*hostEntries // by host
	wildcard map[string]*hostEntries // "*.example.com" under ".example.com"
	any      *hostEntries
}

func newIndex() index {
	return index{exact: map[string]*hostEntries{}, wildcard: map[string]*hostEntries{}, any: new(hostEntries)}
}

// hostEntries are the entries of one host pattern.
type hostEntries struct{ branches []*branch }

// A branch holds the entries of a host that have the same method and the same
// conditions on scheme, header fields and query. Only their paths differ.
type branch struct {
	method  string // "" is any
	scheme  string // "" is any
	headers []condition
	query   []condition
	names   key.NameSet // names of the query parameters
	paths   paths
}

// put adds an entry under the shape of a path.
func (t *index) put(e *entry, shape string) {
	s := t.hostEntries(e.Host)
	if len(e.Methods) == 0 {
		s.branch("", e).paths.add(shape, e)
	}
	for _, method := range e.Methods {
		s.branch(method, e).paths.add(shape, e)
	}
}

// hostEntries returns the entries of a host pattern and creates them if
// necessary.
func (t *index) hostEntries(host string) *hostEntries {
	host = strings.ToLower(host)
	if host == "" || host == "*" {
		return t.any
	}
	sites, name := t.exact, host
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		sites, name = t.wildcard, suffix
	}
	if sites[name] == nil {
		sites[name] = new(hostEntries)
	}
	return sites[name]
}

// branch returns the branch for a method and the conditions of e, and creates it if
// necessary.
func (h *hostEntries) branch(method string, e *entry) *branch {
	for _, b := range h.branches {
		if b.method == method && b.scheme == e.Scheme && slices.Equal(b.headers, e.headers) && slices.Equal(b.query, e.query) {
			return b
		}
	}
	b := &branch{method: method, scheme: e.Scheme, headers: e.headers, query: e.query, paths: paths{exact: map[string]*entry{}}}
	for _, c := range b.query {
		b.names = b.names.With(c.name)
	}
	h.branches = append(h.branches, b)
	return b
}

// admits reports whether q could match here with this method.
func (b *branch) admits(method string, q *Request) bool {
	return (b.method == "" || b.method == method) && (b.scheme == "" || b.scheme == q.Scheme) && (len(b.headers) == 0 || b.admitsHeader(q.Message))
}

func (b *branch) admitsHeader(m Message) bool {
	for _, c := range b.headers {
		if !c.holds(m.Header(c.name)) {
			return false
		}
	}
	return true
}

// A condition requires that a header field or query parameter is present, or has
// this value.
type condition struct{ name, value string } // value "*" is any

func (c condition) holds(values []string) bool {
	return len(values) > 0 && (c.value == "*" || slices.Contains(values, c.value))
}

// String returns the condition in readable form.
func (c condition) String() string {
	if c.value == "*" {
		return c.name
	}
	return c.name + ": " + c.value
}

// conditions returns the conditions in written, each name transformed by
// spelling.
func conditions(written map[string]string, spelling func(string) string) []condition {
	var all []condition
	for name, value := range written {
		all = append(all, condition{spelling(name), value})
	}
	slices.SortFunc(all, func(a, b condition) int { return cmp.Compare(a.name, b.name) })
	return all
}

// headerConditions returns conditions on header fields, with canonical names.
func headerConditions(written map[string]string) []condition {
	return conditions(written, http.CanonicalHeaderKey)
}
