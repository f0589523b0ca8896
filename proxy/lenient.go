package proxy

import (
	"fmt"
	"net/url"
	"strings"
)

// overlong are spellings of a slash and a dot that are no UTF-8; some servers
// decode them all the same.
var overlong = strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", "\xe0\x80\xaf", "/", "\xe0\x80\xae", ".")

// lenient is the path as servers read it that forgive much: escapes are decoded
// twice, overlong ones too, what follows a #, a ? or, in a segment, a ; is none of
// it, and neither are blanks and dots at a segment's end. It is an error if even
// so it has no one spelling.
func lenient(path string) (string, error) {
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
	return tidyPath((&url.URL{Path: strings.Join(segments, "/")}).EscapedPath())
}

// sincere returns errTarget when a lenient server could take the path of x for one
// of another route, or for one with another key.
func (t *table) sincere(x *exchange) error {
	if !strings.ContainsAny(x.path, ";%") && !strings.Contains(x.path, "./") && !strings.HasSuffix(x.path, ".") {
		return nil
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
			err = fmt.Errorf("%w: some servers take this path for another one", errTarget)
		}
		x.path = path
		_ = t.find(x) // as before
	}
	return err
}
