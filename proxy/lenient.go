package proxy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// overlong are spellings of a slash and a dot that are no UTF-8; some servers
// decode them all the same.
var overlong = strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", "\xe0\x80\xaf", "/", "\xe0\x80\xae", ".")

// lenient is the path as servers read it that forgive much: escapes are decoded
// twice, overlong ones too, what follows a #, a ? or, in a segment, a ; is none of
// it, and neither are blanks and dots at a segment's end. It is an error if even
// so it has no one spelling. An escaped slash, where a route keeps those, stays.
func lenient(path string) (string, error) {
	slashes := strings.Contains(path, slash)
	path = strings.ReplaceAll(path, slash, "%25252F") // twice more than it will be decoded
	for range 2 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	path = overlong.Replace(path)
	if i := strings.IndexAny(path, "#?"); i >= 0 {
		path = path[:i]
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		s, _, _ = strings.Cut(s, ";")
		if trimmed := strings.TrimRight(s, " ."); trimmed != "" {
			s = trimmed
		}
		segments[i] = s
	}
	path = (&url.URL{Path: strings.Join(segments, "/")}).EscapedPath()
	if slashes {
		path = strings.ReplaceAll(path, "%252F", slash)
	}
	return tidyPath(path)
}

// unambiguous returns errTarget when a lenient server could take the path of x for one
// of another route, or for one with another key. It returns the path as such a
// server reads it.
func (t *table) unambiguous(x *exchange) (read string, err error) {
	if !strings.ContainsAny(x.path, ";%") && !strings.Contains(x.path, "./") && !strings.HasSuffix(x.path, ".") {
		return x.path, nil
	}
	path, route := x.path, x.route
	var keys []string
	for _, name := range route.hidden {
		keys = append(keys, x.Param(name))
	}
	other, err := lenient(path)
	if err == nil && other != path {
		x.path = other
		_ = t.find(x)
		same := x.route == route
		for i, name := range route.hidden {
			same = same && strings.Trim(x.Param(name), " ") == strings.Trim(keys[i], " ")
		}
		if x.route != nil && !same {
			err = errAnotherPath
		}
		x.path = path
		_ = t.find(x) // as before
	}
	return other, err
}

// errAnotherPath refuses what can be taken for the path of another route.
var errAnotherPath = fmt.Errorf("%w: some servers take this path for another one", errTarget)

// A folded table has the same routes under their paths as servers see them that
// tell neither upper from lower case nor a closing slash from none. Of routes that
// are one there, those that are guarded come first.
type folded struct {
	table
	guarded int                 // how many routes are
	plain   bool                // all patterns are lower case and without a closing slash
	bases   map[string]struct{} // "/files" for "/files/*": some servers take both for one
}

// fold makes t ready for stricter, when it has all its routes.
func (t *table) fold(routes []*route) {
	f := &folded{table: newTable(), plain: true, bases: map[string]struct{}{}}
	t.folded = f
	first := slices.Clone(routes)
	slices.SortStableFunc(first, func(a, b *route) int {
		switch {
		case a.guarded == b.guarded:
			return 0
		case a.guarded:
			return -1
		}
		return 1
	})
	for _, r := range first {
		pattern := foldPattern(r.pattern)
		f.put(r, pattern)
		f.plain = f.plain && pattern == r.pattern
		if r.guarded {
			f.guarded++
		}
	}
	for _, r := range first {
		if base, ok := strings.CutSuffix(foldPattern(r.pattern), "/*"); ok && base != "" {
			f.put(r, base)
			f.bases[base] = struct{}{}
			f.plain = f.plain && !strings.Contains(base, "{")
		}
	}
}

// foldPattern is a pattern, as shape has made it, in the spelling of the folded
// table.
func foldPattern(pattern string) string {
	var b strings.Builder
	for rest := pattern; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			b.WriteString(foldText(rest))
			break
		}
		end := open + closing(rest[open:])
		name, expression, regular := strings.Cut(rest[open:end], ":")
		b.WriteString(foldText(rest[:open]) + name)
		if lower := strings.ToLower(expression); regular && lower != expression {
			expression = "^(?i:" + expression + ")$"
		}
		if regular {
			b.WriteString(":" + expression)
		}
		b.WriteByte('}')
		rest = rest[end+1:]
	}
	return open(b.String())
}

// foldPath is a path in the spelling of the folded table.
func foldPath(path string) string { return open(foldText(path)) }

// open is path without the slash at its end.
func open(path string) string {
	if len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

// foldText brings letters into one case, those beyond ASCII too: some are a plain
// letter in the other case.
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

// differs reports whether path may be another one in the folded table.
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
