package dashboard

import (
	"crypto/rand"
	"sync"
	"time"
)

const (
	// flashTTL is how long the state of a page is kept, and maxFlashes the maximum number of them; a new
	// one replaces the oldest.
	flashTTL   = time.Hour
	maxFlashes = 500
)

// A flash is what a form has led to. A form is answered with a redirect to the page, whose address names the
// flash (POST, redirect, GET): reloading that page repeats nothing, and its address has no key.
type flash[T any] struct {
	who   string // the operator, who alone may see it
	until time.Time
	value T
	shown bool
}

// flashes are the flashes of this node's pages. They are kept in memory: a restart ends them.
type flashes[T any] struct {
	mu    sync.Mutex // guards what follows
	byID  map[string]flash[T]
	order []string // oldest first
}

// keep returns the id of a new flash.
func (f *flashes[T]) keep(who string, value T, now time.Time) string {
	id := rand.Text()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID == nil {
		f.byID = map[string]flash[T]{}
	}
	for len(f.order) > 0 && (len(f.order) >= maxFlashes || !now.Before(f.byID[f.order[0]].until)) {
		delete(f.byID, f.order[0])
		f.order = f.order[1:]
	}
	f.byID[id], f.order = flash[T]{who: who, until: now.Add(flashTTL), value: value}, append(f.order, id)
	return id
}

// show returns a flash of an operator, and whether this is the first time.
func (f *flashes[T]) show(id, who string, now time.Time) (value T, first, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, found := f.byID[id]
	if !found || at.who != who || !now.Before(at.until) {
		return value, false, false
	}
	first = !at.shown
	at.shown = true
	f.byID[id] = at
	return at.value, first, true
}
