package route

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrNone reports that no pattern matches.
	ErrNone = errors.New("no route matches")
	// ErrMethod reports that a pattern matches only with another method.
	ErrMethod = errors.New("no route matches with this method")
)

// Find returns the value of the most specific pattern that q matches, and stores the path
// parameters in q. The error is ErrNone or ErrMethod if nothing matches, ErrQuery if a
// condition on the query cannot be decided because the query is ambiguous, and ErrTarget
// if an upstream could match the path to another pattern. With ErrTarget the value may be
// set as well, for the log: it is the one that would have been found. Without an error
// Find sets the path to forward.
func (t *Table[R]) Find(q *Request) (R, error) {
	err := t.match(q)
	if err == nil {
		t.spell(q)
	}
	return t.found(q), err
}

// FindExact is like Find, without the checks against lenient servers.
func (t *Table[R]) FindExact(q *Request) (R, error) {
	err := t.index.find(q)
	return t.found(q), err
}

// found returns the value of the entry that was found for q; the zero R if there is
// none.
func (t *Table[R]) found(q *Request) R {
	if q.found == nil {
		var none R
		return none
	}
	return t.values[q.found.number]
}

func (t *Table[R]) match(q *Request) error {
	err := t.index.find(q)
	read := q.Path
	if !isReadAlike(read) {
		if strings.Contains(read, escapedSlash) && (err != nil || !q.found.KeepsSlashes) {
			return fmt.Errorf("%w: an escaped slash in the path", ErrTarget)
		}
		if err == nil {
			read, err = t.checkLenient(q)
		}
	}
	if err != nil {
		return err
	}
	if err := t.preferGuarded(q, t.folded, read); err != nil || !t.folded.keys {
		return err
	}
	return t.folded.checkFormat(q, read)
}

// find finds the entry of q without the checks against lenient servers.
func (t *index) find(q *Request) error {
	q.found = nil
	var found bool
	var err error
	if len(t.exact)+len(t.wildcard) == 0 {
		found, err = t.any.match(q)
	} else {
		found, err = t.matchHosts(q)
	}
	if found || err != nil {
		return err
	}
	if len(t.allowed(q)) > 0 {
		return ErrMethod
	}
	return ErrNone
}

// matchHosts calls match for the hostEntries whose host pattern matches, until one
// finds an entry.
func (t *index) matchHosts(q *Request) (bool, error) {
	for s := range t.candidates(q.Host) {
		if found, err := s.match(q); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// candidates yields the hostEntries whose host pattern matches, the most
// specific first.
func (t *index) candidates(host string) func(yield func(*hostEntries) bool) {
	return func(yield func(*hostEntries) bool) {
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

// match searches every branch that admits the request and keeps the most
// specific entry.
func (h *hostEntries) match(q *Request) (bool, error) {
	var best *entry
	var from, last *branch
	for _, b := range h.branches {
		if !b.admits(q.Method, q) {
			continue
		}
		e := b.paths.find(q, q.Path)
		last = b
		if e == nil || best != nil && !b.moreSpecific(e, best, from) {
			continue
		}
		holds, err := q.matchesQuery(b, e)
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
		from.paths.find(q, q.Path) // for the parameters, which the last lookup has overwritten
	}
	q.found = best
	return true, nil
}

// moreSpecific reports whether entry e of b is more specific than one of another branch.
// Both branches admit the request, so a longer method is its method and an empty
// one is any.
func (b *branch) moreSpecific(e, best *entry, of *branch) bool {
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
	for s := range t.candidates(q.Host) {
		for _, b := range s.branches {
			if b.method == "" || !b.admits(b.method, q) {
				continue
			}
			e := b.paths.find(q, q.Path)
			if e == nil {
				continue
			}
			if holds, err := q.matchesQuery(b, e); holds && err == nil {
				methods = append(methods, b.method)
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}
