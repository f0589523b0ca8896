package route

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// stricter takes q to the entry that a careless upstream would take it for, where
// that one is guarded and the one found is not: other letter
// case, a slash at the end or none, HEAD for GET, a method in small letters. Where
// both are guarded it is ErrTarget: neither is the stricter one. A path that is
// written so in a pattern, and a method that stands there, are what was meant.
//
// read is the path as lenient servers read it. On the usual path this allocates
// nothing, and its cost does not grow with the number of entries.
func (t *index) stricter(q *Request, f *folded, read string) error {
	if f.guarded == 0 || f.guarded == 1 && q.found.Guarded {
		return nil
	}
	method := q.Method
	if !slices.Contains(q.found.Methods, method) {
		method = meant(method)
	}
	if method != q.Method {
		if err := t.retake(q, method); err != nil {
			return err
		}
	}
	if q.found.onePath() || read == q.Path && !f.differs(read) {
		return nil
	}
	return f.refold(q, method, read)
}

// meant is the method that a careless upstream acts on.
func meant(method string) string {
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

// retake takes q to the entry that method would lead to, if that is guarded. Its
// path must then be one that is not refused with that method either.
func (t *index) retake(q *Request, method string) error {
	found := q.found
	other, err := t.look(q, method, q.Path)
	switch {
	case err != nil:
		return err
	case other != nil && other.Guarded:
		return q.as(method, q.Path, func(q *Request) error {
			_, err := t.unambiguous(q)
			return err
		})
	}
	_ = t.find(q)
	q.found = found
	return nil
}

// refold takes q to the guarded entry that stands where its path does in the folded
// index.
func (f *folded) refold(q *Request, method, read string) error {
	var few [8]string // so many need no allocation
	found, values := q.found, append(few[:0], q.params.URLParams.Values...)
	path := foldPath(read)
	for _, m := range []string{q.Method, method} {
		other, err := f.look(q, m, path)
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
	q.params.Reset()
	q.found, q.params.URLParams.Values = found, append(q.params.URLParams.Values, values...)
	return nil
}

// look is find for another method and another path; nil if there is no entry. The
// request then has that entry, and is otherwise as it was.
func (t *index) look(q *Request, method, path string) (*entry, error) {
	err := q.as(method, path, t.find)
	if errors.Is(err, ErrNone) || errors.Is(err, ErrMethod) {
		return nil, nil //nolint:nilnil // no entry is no error here
	}
	return q.found, err
}
