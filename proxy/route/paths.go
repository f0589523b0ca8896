package route

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// paths finds the most specific of many path patterns. Looking one up costs two
// or three map accesses and a walk through a tree of the few patterns that begin
// alike, so it does not grow with their number.
type paths struct {
	exact  map[string]*entry // patterns without parameters
	levels []level           // the others, those with the most plain segments first
}

// A level is the patterns whose plain beginning, up to and with a slash, has the
// same number of slashes.
type level struct {
	slashes  int
	sections map[string]*section // by that beginning
}

// A section is the patterns that have their plain beginning in common; chi
// knows what follows it.
type section struct {
	mux     *chi.Mux
	entries map[string]*entry // by the rest of the pattern, a slash before it
	all     *entry            // for whatever follows, if there is no other; nil if there is
}

// add puts an entry under its pattern. An earlier one with the same stays.
func (p *paths) add(pattern string, e *entry) {
	wild := strings.IndexAny(pattern, "{*")
	if wild < 0 {
		if p.exact[pattern] == nil {
			p.exact[pattern] = e
		}
		return
	}
	plain := pattern[:strings.LastIndexByte(pattern[:wild], '/')+1]
	s := p.section(plain)
	rest := pattern[len(plain)-1:]
	if s.entries[rest] == nil {
		s.entries[rest] = e
		// chi keeps a handler for each pattern; ours is never called.
		s.mux.Method(http.MethodGet, rest, http.NotFoundHandler())
	}
	if s.all = nil; len(s.entries) == 1 {
		s.all = s.entries["/*"]
	}
}

func (p *paths) section(plain string) *section {
	slashes := strings.Count(plain, "/")
	i, found := slices.BinarySearchFunc(p.levels, slashes, func(l level, n int) int { return cmp.Compare(n, l.slashes) })
	if !found {
		p.levels = slices.Insert(p.levels, i, level{slashes, map[string]*section{}})
	}
	sections := p.levels[i].sections
	if sections[plain] == nil {
		sections[plain] = &section{mux: chi.NewMux(), entries: map[string]*entry{}}
	}
	return sections[plain]
}

// find returns the entry of the most specific pattern that matches path, nil if
// none does; c then holds the path's parameters.
func (p *paths) find(c *chi.Context, path string) *entry {
	c.Reset()
	if e := p.exact[path]; e != nil {
		return e
	}
	for _, l := range p.levels {
		plain := beginning(path, l.slashes)
		s := l.sections[plain]
		if s == nil {
			continue
		}
		if s.all != nil {
			c.URLParams.Add("*", path[len(plain):])
			return s.all
		}
		if e := s.entries[s.mux.Find(c, http.MethodGet, path[len(plain)-1:])]; e != nil {
			return e
		}
		c.Reset()
	}
	return nil
}

// beginning is path up to and with its n-th slash, "" if it has fewer.
func beginning(path string, n int) string {
	for i := range len(path) {
		if path[i] == '/' {
			if n--; n == 0 {
				return path[:i+1]
			}
		}
	}
	return ""
}
