package route

import (
	"fmt"
	"net/url"
	"strings"
)

// lenientPath returns the path as lenient servers read it: escapes are decoded
// twice, including overlong ones; everything after a # or ? is dropped, and in each
// segment everything after a semicolon and trailing spaces and dots. It returns an
// error if the result is still ambiguous. An escaped slash stays if the pattern
// keeps it.
func lenientPath(path string) (string, error) {
	slashes := strings.Contains(path, escapedSlash)
	path = strings.ReplaceAll(path, escapedSlash, "%25252F") // escaped twice more, to survive the decoding
	for range 2 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	path = decodeOverlong(path)
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
		path = strings.ReplaceAll(path, "%252F", escapedSlash)
	}
	return normalizePath(path)
}

// decodeOverlong replaces overlong encodings of slashes and dots. They are not valid
// UTF-8, but some servers decode them.
func decodeOverlong(path string) string {
	for _, spelled := range []string{"\xc0\xaf", "\xe0\x80\xaf"} {
		path = strings.ReplaceAll(path, spelled, "/")
	}
	for _, spelled := range []string{"\xc0\xae", "\xe0\x80\xae"} {
		path = strings.ReplaceAll(path, spelled, ".")
	}
	return path
}

// isReadAlike reports whether lenient servers read a normalized path as it is: it has no
// escape, no semicolon, and no segment that ends with a dot.
func isReadAlike(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '%', ';':
			return false
		case '.':
			if i == len(path)-1 || path[i+1] == '/' {
				return false
			}
		}
	}
	return true
}

// checkLenient returns ErrTarget if a lenient server could match the path of q to
// another entry, or read another key from it. It returns the path as such a server
// reads it.
func (t *index) checkLenient(q *Request) (read string, err error) {
	if isReadAlike(q.Path) {
		return q.Path, nil
	}
	path, found := q.Path, q.found
	var keys []string
	for _, name := range found.Keys {
		keys = append(keys, q.Param(name))
	}
	other, err := lenientPath(path)
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
		_ = t.find(q) // restores the parameters
	}
	return other, err
}

// errAnotherPath reports a path that a lenient server could take for the path
// of another route.
var errAnotherPath = fmt.Errorf("%w: some servers read this path as another one", ErrTarget)
