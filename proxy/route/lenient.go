package route

import (
	"fmt"
	"net/url"
	"strings"
)

// lenient is the path as servers read it that forgive much: escapes are decoded
// twice, overlong ones too, what follows a #, a ? or, in a segment, a ; is none of
// it, and neither are blanks and dots at a segment's end. It is an error if even
// so it has no one spelling. An escaped slash, where a pattern keeps those, stays.
func lenient(path string) (string, error) {
	slashes := strings.Contains(path, slash)
	path = strings.ReplaceAll(path, slash, "%25252F") // twice more than it will be decoded
	for range 2 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	path = withoutOverlong(path)
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

// withoutOverlong has slashes and dots for their overlong spellings, which are no UTF-8;
// some servers decode them all the same.
func withoutOverlong(path string) string {
	for _, spelled := range []string{"\xc0\xaf", "\xe0\x80\xaf"} {
		path = strings.ReplaceAll(path, spelled, "/")
	}
	for _, spelled := range []string{"\xc0\xae", "\xe0\x80\xae"} {
		path = strings.ReplaceAll(path, spelled, ".")
	}
	return path
}

// unambiguous returns ErrTarget when a lenient server could take the path of q for one
// of another entry, or for one with another key. It returns the path as such a
// server reads it.
func (t *index) unambiguous(q *Request) (read string, err error) {
	if !strings.ContainsAny(q.Path, ";%") && !strings.Contains(q.Path, "./") && !strings.HasSuffix(q.Path, ".") {
		return q.Path, nil
	}
	path, found := q.Path, q.found
	var keys []string
	for _, name := range found.Keys {
		keys = append(keys, q.Param(name))
	}
	other, err := lenient(path)
	if err == nil && other != path {
		q.Path = other
		_ = t.find(q)
		same := q.found == found
		for i, name := range found.Keys {
			same = same && strings.Trim(q.Param(name), " ") == strings.Trim(keys[i], " ")
		}
		if q.found != nil && !same {
			err = errAnotherPath
		}
		q.Path = path
		_ = t.find(q) // as before
	}
	return other, err
}

// errAnotherPath refuses what can be taken for the path of another route.
var errAnotherPath = fmt.Errorf("%w: some servers take this path for another one", ErrTarget)
