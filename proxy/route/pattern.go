package route

import (
	"cmp"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// A Pattern describes the requests that an entry matches, and how strictly their
// targets are read. It must be valid: package config checks it.
type Pattern struct {
	Host    string            // "" and "*" match any host, "*.example.com" all hosts below it
	Methods []string          // empty for any
	Scheme  string            // http or https; empty for any
	Path    string            // /users/{id}, /users/{id:[0-9]+}, /files/*
	Headers map[string]string // values by field names; "*" is any value
	Query   map[string]string // the same for query parameters

	// Guarded is true for a route that may refuse requests: a request that a lenient
	// upstream could treat as a request of a guarded pattern is matched to that
	// pattern.
	Guarded bool
	// IsRest is true for a guarded route that refuses whatever no other route matches: what an upstream could match to
	// another guarded pattern is matched to that one.
	IsRest bool
	// Keys are the path parameters that limits count by: a path in which some
	// servers read another value of one is refused.
	Keys []string
	// EndsInKey is true if the parameter at the end of the path is one of Keys, by which requests may
	// be refused: see checkFormat.
	EndsInKey bool
	// KeepsSlashes allows escaped slashes in the path.
	KeepsSlashes bool
	// KeepsRepeats forwards repeated slashes; the path is matched without them.
	KeepsRepeats bool
	// IgnoresForms allows a form in the body although the pattern has conditions on
	// the query.
	IgnoresForms bool
}

// An entry is a compiled pattern.
type entry struct {
	Pattern
	number         int      // index in the table
	shape          string   // the path pattern with its parameters renamed
	params         []string // names of the path parameters, in order
	segments       []int    // the segments of the parameters
	depth          string
	ending         ending
	headers, query []condition
}

func newEntry(number int, p Pattern) *entry {
	e := &entry{Pattern: p, number: number}
	e.shape, e.params = shape(p.Path)
	e.segments, e.depth, e.ending = segmentNumbers(e.shape), depth(e.shape), endingOf(e.shape, p, e.params)
	e.headers, e.query = conditions(p.Headers, http.CanonicalHeaderKey), conditions(p.Query, strings.Clone)
	return e
}

// conditions returns the number of conditions on the scheme, header fields and query
// parameters.
func (e *entry) conditions() int {
	n := len(e.headers) + len(e.query)
	if e.Scheme != "" {
		n++
	}
	return n
}

// onePath reports whether e matches exactly one path.
func (e *entry) onePath() bool { return len(e.params) == 0 }

// capture returns the values of the parameters of e in path, as they were sent.
func (e *entry) capture(path string) []string {
	segments := strings.Split(path[1:], "/")
	var values []string
	for i, at := range e.segments {
		switch {
		case at >= len(segments):
			values = append(values, "")
		case e.params[i] == "*":
			values = append(values, strings.Join(segments[at:], "/"))
		default:
			values = append(values, segments[at])
		}
	}
	return values
}

// shape renames the parameters of a path pattern by their position, so that
// patterns which match the same paths are the same text, and returns the names
// in order. The pattern was checked when the configuration was read.
func shape(path string) (pattern string, params []string) {
	var b strings.Builder
	for text, parameter := range pieces(path) {
		b.WriteString(normalizePattern(text))
		if parameter != "" {
			name, _, _ := strings.Cut(parameter, ":")
			b.WriteString("{p" + strconv.Itoa(len(params)) + parameter[len(name):] + "}")
			params = append(params, name)
		}
	}
	if strings.HasSuffix(path, "*") {
		params = append(params, "*")
	}
	return b.String(), params
}

// pieces yields the texts of a pattern and the parameter behind each, without its braces; "" behind the last.
func pieces(pattern string) iter.Seq2[string, string] {
	return func(yield func(text, parameter string) bool) {
		for {
			open := strings.IndexByte(pattern, '{')
			if open < 0 {
				yield(pattern, "")
				return
			}
			end := open + closingBrace(pattern[open:])
			if !yield(pattern[:open], pattern[open+1:end]) {
				return
			}
			pattern = pattern[end+1:]
		}
	}
}

// segmentNumbers returns the numbers of the segments that hold the parameters of a
// pattern, the one for * last.
func segmentNumbers(pattern string) (at []int) {
	number := -1 // the path begins with a slash
	for text, parameter := range pieces(pattern) {
		number += strings.Count(text, "/")
		if parameter != "" || strings.HasSuffix(text, "*") {
			at = append(at, number)
		}
	}
	return at
}

// normalizePattern normalizes the literal part of a pattern in the same way as
// a path.
func normalizePattern(part string) string {
	if spelled, err := matchedSpelling.normalize(part); err == nil {
		return spelled
	}
	return part
}

// closingBrace returns the index of the brace that matches the first byte of s.
func closingBrace(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return len(s) - 1
}

// depth ranks each segment of a pattern: of two patterns that match one path,
// the one with the smaller depth is more specific. chi uses the same order.
func depth(pattern string) string {
	var b strings.Builder
	for segment := range strings.SplitSeq(pattern[1:], "/") {
		switch {
		case segment == "*":
			b.WriteByte('d')
		case !strings.Contains(segment, "{"):
			b.WriteByte('a')
		case strings.Contains(segment, ":"):
			b.WriteByte('b')
		default:
			b.WriteByte('c')
		}
	}
	return b.String()
}

// paths finds the most specific of many path patterns. A lookup costs two or
// three map accesses and a walk through a tree of the few patterns that share a
// prefix, so its cost does not grow with the number of patterns.
type paths struct {
	exact  map[string]*entry // patterns without parameters
	levels []level           // the others, those with the most literal segments first
}

// A level holds the patterns whose literal prefix, up to and including its last
// slash, has the same number of slashes.
type level struct {
	slashes int
	groups  map[string]*prefixGroup // by prefix
}

// A prefixGroup holds the patterns with the same literal prefix. Most prefixes have one
// pattern, which matches everything below: it needs no router.
type prefixGroup struct {
	plain string // the prefix
	all   *entry // the entry of the pattern with * after the prefix, if it is the only one
	rests *rests // the patterns; nil if all is set
}

// rests are the patterns of a prefixGroup without the prefix, but with a slash before. A
// chi router matches them.
type rests struct {
	mux     *chi.Mux
	entries map[string]*entry
}

// add adds an entry. An earlier one with the same pattern is kept.
func (r *rests) add(rest string, e *entry) {
	if r.entries[rest] == nil {
		r.entries[rest] = e
		// chi keeps a handler for each pattern; ours is never called.
		r.mux.Method(http.MethodGet, rest, http.NotFoundHandler())
	}
}

// add adds an entry. An earlier one with the same pattern is kept.
func (p *paths) add(pattern string, e *entry) {
	wild := strings.IndexAny(pattern, "{*")
	if wild < 0 {
		if p.exact[pattern] == nil {
			p.exact[pattern] = e
		}
		return
	}
	plain := pattern[:strings.LastIndexByte(pattern[:wild], '/')+1]
	p.group(plain).add(pattern[len(plain)-1:], e)
}

// add adds an entry under the rest of its pattern.
func (p *prefixGroup) add(rest string, e *entry) {
	if rest == "/*" && p.rests == nil {
		if p.all == nil {
			p.all = e
		}
		return
	}
	if p.rests == nil {
		p.rests = &rests{chi.NewMux(), map[string]*entry{}}
		if p.all != nil {
			p.rests.add("/*", p.all)
			p.all = nil
		}
	}
	p.rests.add(rest, e)
}

func (p *paths) group(plain string) *prefixGroup {
	slashes := strings.Count(plain, "/")
	i, found := slices.BinarySearchFunc(p.levels, slashes,
		func(l level, n int) int { return cmp.Compare(n, l.slashes) })
	if !found {
		p.levels = slices.Insert(p.levels, i, level{slashes: slashes, groups: map[string]*prefixGroup{}})
	}
	l := &p.levels[i]
	s := l.groups[plain]
	if s == nil {
		s = &prefixGroup{plain: plain}
		l.groups[plain] = s
	}
	return s
}

// find returns the entry of the most specific pattern that matches path, or
// nil; q.values are then the path parameters.
func (p *paths) find(q *Request, path string) *entry {
	q.values = q.values[:0]
	if e := p.exact[path]; e != nil {
		return e
	}
	for _, l := range p.levels {
		s := l.groups[prefixOf(path, l.slashes)]
		if s == nil {
			continue
		}
		if s.all != nil {
			q.values = append(q.values, path[len(s.plain):])
			return s.all
		}
		if e := s.rests.find(q, path[len(s.plain)-1:]); e != nil {
			return e
		}
	}
	return nil
}

// find returns the entry of the most specific pattern that matches rest, which
// begins with the last slash of the prefix, or nil; q.values are then the path
// parameters.
func (r *rests) find(q *Request, rest string) *entry {
	if q.tree == nil {
		q.tree = chi.NewRouteContext()
	}
	q.tree.Reset()
	e := r.entries[r.mux.Find(q.tree, http.MethodGet, rest)]
	if e != nil {
		q.values = append(q.values, q.tree.URLParams.Values...)
	}
	return e
}

// prefixOf returns path up to and including its n-th slash, "" if it has fewer.
func prefixOf(path string, n int) string {
	for i := range len(path) {
		if path[i] == '/' {
			if n--; n == 0 {
				return path[:i+1]
			}
		}
	}
	return ""
}

// A folded index holds the same entries under case-folded paths without a trailing
// slash, as case-insensitive servers see them. Of entries that collide there,
// guarded ones come first.
type folded struct {
	index
	guarded int                 // number of guarded entries
	plain   bool                // all patterns are lower case and have no trailing slash
	keys    bool                // some pattern ends in a key, see checkFormat
	bases   map[string]struct{} // "/files" for "/files/*": some servers treat both alike
}

// fold builds the folded index of entries.
func fold(entries []*entry) *folded {
	f := &folded{index: newIndex(), plain: true, bases: map[string]struct{}{}}
	var guarded, others []*entry
	for _, e := range entries {
		if e.Guarded {
			guarded = append(guarded, e)
		} else {
			others = append(others, e)
		}
	}
	f.guarded = len(guarded)
	first := slices.Concat(guarded, others)
	for _, e := range first {
		pattern := foldPattern(e.shape)
		f.put(e, pattern)
		f.plain = f.plain && pattern == e.shape
		f.keys = f.keys || e.ending >= endsKey
	}
	for _, e := range first {
		if base, ok := strings.CutSuffix(foldPattern(e.shape), "/*"); ok && base != "" {
			f.put(e, base)
			f.bases[base] = struct{}{}
			f.plain = f.plain && !strings.Contains(base, "{")
		}
	}
	return f
}

// foldPattern returns the key of a pattern, as made by shape, in the folded
// index.
func foldPattern(pattern string) string {
	var b strings.Builder
	for text, parameter := range pieces(pattern) {
		b.WriteString(foldText(text))
		name, expression, _ := strings.Cut(parameter, ":")
		if strings.ToLower(expression) != expression {
			parameter = name + ":^(?i:" + expression + ")$"
		}
		if parameter != "" {
			b.WriteString("{" + parameter + "}")
		}
	}
	return trimSlash(b.String())
}

// foldPath returns the key of a path in the folded index.
func foldPath(path string) string { return trimSlash(foldText(path)) }

// trimSlash returns path without its trailing slash.
func trimSlash(path string) string {
	if len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

// foldText folds the case of letters, including non-ASCII ones: the lower case of
// the Kelvin sign, for example, is an ASCII k.
func foldText(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return strings.ToLower(s)
	}
	segments := strings.Split(s, "/")
	for i, s := range segments {
		if text, err := url.PathUnescape(s); err == nil && strings.IndexByte(s, '%') >= 0 {
			s = url.PathEscape(strings.ToLower(strings.ToUpper(text)))
		}
		segments[i] = strings.ToLower(s)
	}
	return strings.Join(segments, "/")
}

// differs reports whether path may have another key in the folded index.
func (f *folded) differs(path string) bool {
	if !f.plain || len(path) > 1 && path[len(path)-1] == '/' {
		return true
	}
	for i := range len(path) {
		if c := path[i]; 'A' <= c && c <= 'Z' { // the digits of an escape as well
			return true
		}
	}
	_, base := f.bases[path]
	return base
}
