package route

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

var (
	// ErrNone reports that no pattern matches.
	ErrNone = errors.New("no route matches")
	// ErrMethod reports that a pattern matches only with another method.
	ErrMethod = errors.New("no route matches with this method")
)

// Find returns the value of the most specific pattern that q matches, and stores the path
// parameters in q. The error is ErrNone or ErrMethod if nothing matches, ErrQuery if a
// condition on the query cannot be decided because the query is ambiguous, and ErrTarget
// if an upstream could match the path to another pattern. With ErrTarget the value may be
// set as well, for the log: it is the one that would have been found. Without an error
// Find sets the path to forward.
func (t *Table[R]) Find(q *Request) (R, error) {
	err := t.match(q)
	if err == nil {
		t.spell(q)
	}
	return t.found(q), err
}

// FindExact is like Find, without the checks against lenient servers.
func (t *Table[R]) FindExact(q *Request) (R, error) {
	err := t.index.find(q)
	return t.found(q), err
}

// found returns the value of the entry that was found for q; the zero R if there is
// none.
func (t *Table[R]) found(q *Request) R {
	if q.found == nil {
		var none R
		return none
	}
	return t.values[q.found.number]
}

func (t *Table[R]) match(q *Request) error {
	err := t.index.find(q)
	read := q.Path
	if !isReadAlike(read) {
		if strings.Contains(read, escapedSlash) && (err != nil || !q.found.KeepsSlashes) {
			return fmt.Errorf("%w: an escaped slash in the path", ErrTarget)
		}
		if err == nil {
			read, err = t.checkLenient(q)
		}
	}
	if err != nil {
		return err
	}
	if err := t.preferGuarded(q, t.folded, read); err != nil || !t.folded.keys {
		return err
	}
	return t.folded.checkFormat(q, read)
}

// find finds the entry of q without the checks against lenient servers.
func (t *index) find(q *Request) error {
	q.found = nil
	for s := range t.candidates(q.Host) {
		if found, err := s.match(q); found || err != nil {
			return err
		}
	}
	if len(t.Allowed(q)) > 0 {
		return ErrMethod
	}
	return ErrNone
}

// candidates yields the hostEntries whose host pattern matches, the most
// specific first.
func (t *index) candidates(host string) iter.Seq[*hostEntries] {
	return func(yield func(*hostEntries) bool) {
		if s := t.exact[host]; s != nil && !yield(s) {
			return
		}
		for i := 1; i < len(host) && len(t.wildcard) > 0; i++ {
			if host[i] != '.' {
				continue
			}
			if s := t.wildcard[host[i:]]; s != nil && !yield(s) {
				return
			}
		}
		yield(t.any)
	}
}

// match searches every branch that admits the request and keeps the most
// specific entry.
func (h *hostEntries) match(q *Request) (bool, error) {
	var best *entry
	var from, last *branch
	for _, b := range h.branches {
		if !b.admits(q.Method, q) {
			continue
		}
		e := b.paths.find(q, q.Path)
		last = b
		if e == nil || best != nil && !b.moreSpecific(e, best, from) {
			continue
		}
		holds, err := q.matchesQuery(b, e)
		if err != nil {
			return false, err
		}
		if holds {
			best, from = e, b
		}
	}
	if best == nil {
		return false, nil
	}
	if from != last {
		from.paths.find(q, q.Path) // for the parameters, which the last lookup has overwritten
	}
	q.found = best
	return true, nil
}

// moreSpecific reports whether entry e of b is more specific than one of another branch.
// Both branches admit the request, so a longer method is its method and an empty
// one is any.
func (b *branch) moreSpecific(e, best *entry, of *branch) bool {
	return cmp.Or(
		cmp.Compare(e.depth, best.depth),
		cmp.Compare(len(of.method), len(b.method)),
		cmp.Compare(best.conditions(), e.conditions()),
		cmp.Compare(e.number, best.number),
	) < 0
}

// Allowed lists the methods with which q would match, sorted.
func (t *index) Allowed(q *Request) []string {
	var methods []string
	for s := range t.candidates(q.Host) {
		for _, b := range s.branches {
			if b.method == "" || !b.admits(b.method, q) {
				continue
			}
			e := b.paths.find(q, q.Path)
			if e == nil {
				continue
			}
			if holds, err := q.matchesQuery(b, e); holds && err == nil {
				methods = append(methods, b.method)
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

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
	return !slices.ContainsFunc(b.headers, func(c condition) bool { return !c.holds(m.Header(c.name)) })
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

// Mismatches describes each condition of a pattern that q does not meet; number is the
// number of the entry, and shown the pattern as it is told. It returns nothing if all conditions are met.
func (t *Table[R]) Mismatches(number int, q *Request, shown Pattern) []string {
	var all []string
	e, headers, query := t.entries[number], conditions(shown.Headers, http.CanonicalHeaderKey), conditions(shown.Query, strings.Clone)
	if !slices.Contains(slices.Collect(t.candidates(q.Host)), t.hostEntries(e.Host)) {
		all = append(all, "host: want "+shown.Host)
	}
	one := paths{exact: map[string]*entry{}}
	one.add(e.shape, e)
	if one.find(new(Request), q.Path) == nil {
		all = append(all, "path: want "+shown.Path)
	}
	if len(e.Methods) > 0 && !slices.Contains(e.Methods, q.Method) {
		all = append(all, "method: want "+strings.Join(e.Methods, " or "))
	}
	if e.Scheme != "" && e.Scheme != q.Scheme {
		all = append(all, "scheme: want "+e.Scheme)
	}
	for i, c := range e.headers {
		if !c.holds(q.Message.Header(c.name)) {
			all = append(all, "header: want "+headers[i].String())
		}
	}
	if len(e.query) == 0 {
		return all
	}
	sent, err := q.Message.ParsedQuery()
	if err != nil {
		return append(all, "query: it can be read in two ways")
	}
	for i, c := range e.query {
		if !c.holds(sent[c.name]) {
			all = append(all, "query: want "+query[i].String())
		}
	}
	return all
}

// preferGuarded moves q from an unguarded entry to a guarded one that a lenient
// upstream could match instead: with other letter case, with or without a trailing
// slash, with GET for HEAD, or with a lower-case method. If both entries are guarded,
// it returns ErrTarget, because neither is stricter. A path or method that is spelled
// exactly as in a pattern stays with that pattern.
//
// read is the path as lenient servers read it. Normally this does not allocate;
// its cost does not depend on the number of entries.
func (t *index) preferGuarded(q *Request, f *folded, read string) error {
	if f.guarded == 0 || f.guarded == 1 && q.found.Guarded {
		return nil
	}
	method := q.Method
	if !slices.Contains(q.found.Methods, method) {
		method = effectiveMethod(method)
	}
	if method != q.Method {
		if err := t.matchGuardedMethod(q, method); err != nil {
			return err
		}
	}
	if q.found.onePath() || read == q.Path && !f.differs(read) {
		return nil
	}
	return f.matchGuardedPath(q, method, read)
}

// effectiveMethod returns the method as a lenient upstream would handle it.
func effectiveMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	method = strings.ToUpper(method)
	if method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

// matchGuardedMethod moves q to the entry found with method, if that entry is guarded. The
// path must be acceptable for that entry as well.
func (t *index) matchGuardedMethod(q *Request, method string) error {
	found := q.found
	other, err := t.lookup(q, method, q.Path)
	switch {
	case err != nil:
		return err
	case other != nil && other.Guarded:
		return q.withPath(method, q.Path, func(q *Request) error {
			_, err := t.checkLenient(q)
			return err
		})
	}
	_ = t.find(q)
	q.found = found
	return nil
}

// matchGuardedPath moves q to the guarded entry that its path finds in the folded index.
func (f *folded) matchGuardedPath(q *Request, method, read string) error {
	var few [8]string // avoids an allocation in most cases
	found, values := q.found, append(few[:0], q.values...)
	path := foldPath(read)
	for _, m := range []string{q.Method, method} {
		other, err := f.lookup(q, m, path)
		if err != nil {
			return err
		}
		if other == nil || other == found || !other.Guarded {
			continue
		}
		if found.Guarded && !found.IsRest || read != q.Path {
			return errAnotherPath
		}
		found, values = other, other.capture(q.Path)
		break
	}
	q.found, q.values = found, append(q.values[:0], values...)
	return nil
}

// lookup finds the entry for another method and path, and returns nil if there is
// none. It sets q.found and changes nothing else in q.
func (t *index) lookup(q *Request, method, path string) (*entry, error) {
	err := q.withPath(method, path, t.find)
	if errors.Is(err, ErrNone) || errors.Is(err, ErrMethod) {
		return nil, nil //nolint:nilnil // no match is not an error here
	}
	return q.found, err
}
