package route

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

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
		if found.Guarded || read != q.Path {
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
