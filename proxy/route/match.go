package route

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

var (
	// ErrNone says that no pattern matches.
	ErrNone = errors.New("no route matches")
	// ErrMethod says that no pattern matches, and that one would with another method.
	ErrMethod = errors.New("no route matches with this method")
)

// Find returns what stands under the pattern that q matches, and keeps the parameters of
// the path in q. The error is ErrNone or ErrMethod when nothing matches; ErrQuery when
// the query decides and can be read in two ways; ErrTarget when an upstream could take
// the path for another pattern's. With ErrTarget there may be a value as well: what would
// have been found, for the log.
func (t *Table[R]) Find(q *Request) (R, error) {
	err := t.match(q)
	return t.found(q), err
}

// FindPlain is Find that takes the path as it is: nothing is refused or found because of
// what others might read in it.
func (t *Table[R]) FindPlain(q *Request) (R, error) {
	err := t.index.find(q)
	return t.found(q), err
}

// found is the value of the entry that q was found under; the zero R if there is none.
func (t *Table[R]) found(q *Request) R {
	if q.found == nil {
		var none R
		return none
	}
	return t.values[q.found.number]
}

func (t *Table[R]) match(q *Request) error {
	err := t.index.find(q)
	if strings.Contains(q.Path, slash) && (err != nil || !q.found.KeepsSlashes) {
		return fmt.Errorf("%w: a slash that is escaped in the path", ErrTarget)
	}
	if err != nil {
		return err
	}
	read, err := t.unambiguous(q)
	if err != nil {
		return err
	}
	return t.stricter(q, t.folded, read)
}

// find finds the entry of q, whose path is taken as it is.
func (t *index) find(q *Request) error {
	q.found = nil
	if q.params == nil {
		q.params = chi.NewRouteContext()
	}
	for s := range t.sites(q.Host) {
		if found, err := s.match(q); found || err != nil {
			return err
		}
	}
	if len(t.allowed(q)) > 0 {
		return ErrMethod
	}
	return ErrNone
}

// sites yields those whose host matches, the most specific first.
func (t *index) sites(host string) func(yield func(*site) bool) {
	return func(yield func(*site) bool) {
		if s := t.exact[host]; s != nil && !yield(s) {
			return
		}
		for i := 1; i < len(host) && len(t.wildcard) > 0; i++ {
			if host[i] != '.' {
				continue
			}
			if s := t.wildcard[host[i:]]; s != nil && !yield(s) {
				return
			}
		}
		yield(t.any)
	}
}

// match looks on every branch that admits the request and keeps the most
// specific entry.
func (s *site) match(q *Request) (bool, error) {
	var best *entry
	var from, last *branch
	for _, b := range s.branches {
		if !b.admits(q.Method, q.Message) {
			continue
		}
		e := b.paths.find(q.params, q.Path)
		last = b
		if e == nil || best != nil && !b.beats(e, best, from) {
			continue
		}
		holds, err := q.holds(b, e)
		if err != nil {
			return false, err
		}
		if holds {
			best, from = e, b
		}
	}
	if best == nil {
		return false, nil
	}
	if from != last {
		from.paths.find(q.params, q.Path) // for the parameters, which the last look has overwritten
	}
	q.found = best
	return true, nil
}

// beats reports whether entry e of b is more specific than one of another branch.
// Both branches admit the request, so a longer method is its method and an empty
// one is any.
func (b *branch) beats(e, best *entry, of *branch) bool {
	return cmp.Or(
		cmp.Compare(e.depth, best.depth),
		cmp.Compare(len(of.method), len(b.method)),
		cmp.Compare(best.conditions(), e.conditions()),
		cmp.Compare(e.number, best.number),
	) < 0
}

// Allowed lists the methods with which q would match, sorted.
func (t *Table[R]) Allowed(q *Request) []string { return t.allowed(q) }

func (t *index) allowed(q *Request) []string {
	var methods []string
	for s := range t.sites(q.Host) {
		for _, b := range s.branches {
			if b.method == "" || !b.admits(b.method, q.Message) {
				continue
			}
			e := b.paths.find(q.params, q.Path)
			if e == nil {
				continue
			}
			if holds, err := q.holds(b, e); holds && err == nil {
				methods = append(methods, b.method)
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}
