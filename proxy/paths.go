package proxy

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// paths finds the most specific of many path patterns. Looking one up costs two
// or three map accesses and a walk through a tree of the few patterns that begin
// alike, so it does not grow with their number.
type paths struct {
	exact  map[string]*route // patterns without parameters
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
	mux    *chi.Mux
	routes map[string]*route // by the rest of the pattern, a slash before it
	all    *route            // for whatever follows, if there is no other; nil if there is
}

// add puts a route under its pattern. An earlier one with the same stays.
func (p *paths) add(pattern string, r *route) {
	wild := strings.IndexAny(pattern, "{*")
	if wild < 0 {
		if p.exact[pattern] == nil {
			p.exact[pattern] = r
		}
		return
	}
	plain := pattern[:strings.LastIndexByte(pattern[:wild], '/')+1]
	s := p.section(plain)
	rest := pattern[len(plain)-1:]
	if s.routes[rest] == nil {
		s.routes[rest] = r
		// chi keeps a handler for each pattern; ours is never called.
		s.mux.Method(http.MethodGet, rest, http.NotFoundHandler())
	}
	if s.all = nil; len(s.routes) == 1 {
		s.all = s.routes["/*"]
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
		sections[plain] = &section{mux: chi.NewMux(), routes: map[string]*route{}}
	}
	return sections[plain]
}

// find returns the route of the most specific pattern that matches path, nil if
// none does; c then holds the path's parameters.
func (p *paths) find(c *chi.Context, path string) *route {
	c.Reset()
	if r := p.exact[path]; r != nil {
		return r
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
		if r := s.routes[s.mux.Find(c, http.MethodGet, path[len(plain)-1:])]; r != nil {
			return r
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

// shape renames the parameters of a path pattern by their position, so that
// patterns which match the same paths are the same text, and returns the names
// in order. The pattern was checked when the configuration was read.
func shape(path string) (pattern string, params []string) {
	var b strings.Builder
	for path != "" {
		open := strings.IndexByte(path, '{')
		if open < 0 {
			break
		}
		end := open + closing(path[open:])
		name, expression, regular := strings.Cut(path[open+1:end], ":")
		b.WriteString(spell(path[:open]) + "{p" + strconv.Itoa(len(params)))
		if regular {
			b.WriteString(":" + expression)
		}
		b.WriteByte('}')
		params = append(params, name)
		path = path[end+1:]
	}
	b.WriteString(spell(path))
	if strings.HasSuffix(path, "*") {
		params = append(params, "*")
	}
	return b.String(), params
}

// segments are the numbers of those in which the parameters of a pattern stand,
// the one for * last.
func segments(pattern string) []int {
	var at []int
	number := 0
	for i := 1; i < len(pattern); i++ {
		switch pattern[i] {
		case '/':
			number++
		case '*':
			at = append(at, number)
		case '{':
			at = append(at, number)
			i += closing(pattern[i:])
		}
	}
	return at
}

// spell writes the plain part of a pattern as tidy writes a path.
func spell(part string) string {
	if spelled, err := respell(part); err == nil {
		return spelled
	}
	return part
}

// closing is the index of the brace that closes the one s begins with.
func closing(s string) int {
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

// depth says how specific each segment of a pattern is: of two patterns that
// match one path, the one whose depth is smaller is the more specific. chi
// weighs them in the same order.
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
