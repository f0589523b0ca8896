package route

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// parse sets the parts of the target (RFC 9112 section 3.2): of the origin form, /path?query; the
// absolute form, http://host/path?query; or the asterisk form. A fragment is refused: some
// servers cut it off and others do not, so they would see different targets. The authority of the
// absolute form takes precedence over Host (section 3.2.2). An HTTP/1.0 request may have
// neither; its host is then the address that the client connected to. Other
// requests without a host are refused, because an upstream would assume its own
// name.
func (t *Target) parse(sent *RawTarget) error {
	s := sent.RequestTarget
	if strings.IndexByte(s, '#') >= 0 {
		return fmt.Errorf("%w: an unescaped #", ErrTarget)
	}
	absolute := s != "" && s[0] != '/' && s != "*"
	if absolute {
		scheme, rest, found := strings.Cut(s, "://")
		if !found {
			return fmt.Errorf("%w: a path begins with a slash", ErrTarget)
		}
		s = strings.TrimLeftFunc(rest, func(r rune) bool { return r != '/' && r != '?' })
		if len(s) == len(rest) {
			return fmt.Errorf("%w: no host", ErrTarget)
		}
		if err := sent.checkScheme(strings.ToLower(scheme)); err != nil {
			return err
		}
		t.Authority = rest[:len(rest)-len(s)]
	}
	t.SentPath, t.RawQuery, _ = strings.Cut(s, "?")
	switch {
	case !absolute || t.SentPath != "":
	case sent.Method == "OPTIONS" && t.RawQuery == "":
		t.SentPath = "*"
	default:
		t.SentPath = "/"
	}
	if t.Authority != "" {
		return nil
	}
	if sent.Proto != "HTTP/1.0" {
		return fmt.Errorf("%w: no host", ErrTarget)
	}
	t.Authority = sent.Local
	return nil
}

// checkScheme returns ErrTarget for a scheme that is not served. https on a plain
// connection is accepted from a trusted proxy only, which may have terminated TLS (RFC
// 9110 section 7.4). http on a TLS connection is accepted.
func (r *RawTarget) checkScheme(scheme string) error {
	switch {
	case scheme == "http", scheme == "https" && r.HTTPS:
		return nil
	case scheme == "https":
		return fmt.Errorf("%w: https on a connection without TLS", ErrTarget)
	}
	return fmt.Errorf("%w: neither http nor https", ErrTarget)
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
	if len(p.exact) > 0 {
		if e := p.exact[path]; e != nil {
			return e
		}
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
