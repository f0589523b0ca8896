// Package dashboard serves the web pages of the admin listener: what is happening now, which
// clients are limited and why, and how to unblock a key.
//
// The pages are made here and work without scripts; scripts keep numbers live and draw
// charts. All that a page needs is embedded: a browser asks no other host, and the
// content security policy holds it to that. What is shown is asked of the same functions
// that the API asks. Keys travel in forms only, never in a URL, where logs and histories
// would keep them.
package dashboard

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A dashboard serves all pages.
type dashboard struct {
	admin.Options
	sessions *sessions
	gauge    *rateGauge
	last     memories
	looks    flashes[keyFlash]
	pushes   flashes[configFlash]
	directed flashes[directiveFlash]
	// Embedded files are parsed on first use: they take a megabyte of memory, and most nodes never
	// show a page.
	pages  func() pages
	static func() static
}

// New returns the handler of "/" and all paths below "/dashboard/". It must be wrapped by the admin
// handler, which checks the host and the origin of forms.
func New(o admin.Options) http.Handler {
	d := &dashboard{
		Options: o, sessions: newSessions(), gauge: &rateGauge{from: o.Gatherer, readings: []reading{{At: time.Now()}}},
		looks: newFlashes[keyFlash](), pushes: newFlashes[configFlash](), directed: newFlashes[directiveFlash](),
		pages: sync.OnceValue(parsePages), static: sync.OnceValue(readStatic),
	}
	mux := chi.NewMux()
	mux.Use(headers)
	mux.NotFound(d.notFound)
	mux.Get("/dashboard/static/{name}", func(w http.ResponseWriter, r *http.Request) { d.static().ServeHTTP(w, r) })
	mux.Get("/dashboard/login", d.loginForm)
	mux.Post("/dashboard/login", d.login)
	mux.Post("/dashboard/logout", d.logout)
	mux.Get("/", d.page(d.showOverview))
	mux.Get("/dashboard/series", d.protect(d.serveSeries))
	mux.Get("/dashboard/events", d.protect(d.Stream))
	mux.Get("/dashboard/routes", d.page(d.showRoutes))
	mux.Get("/dashboard/keys", d.page(d.showKeys))
	mux.Post("/dashboard/keys", d.page(d.lookUp))
	mux.Post("/dashboard/keys/change", d.page(d.changeKey))
	mux.Post("/dashboard/directives", d.page(d.changeDirective))
	mux.Get("/dashboard/explain", d.page(d.showExplainForm))
	mux.Post("/dashboard/explain", d.page(d.explain))
	mux.Get("/dashboard/simulate", d.page(d.showSimulateForm))
	mux.Post("/dashboard/simulate", d.requireSession(d.simulate))
	mux.Get("/dashboard/nodes", d.page(d.showNodes))
	mux.Get("/dashboard/config", d.page(d.showConfig))
	mux.Post("/dashboard/config/push", d.page(d.pushConfig))
	mux.Post("/dashboard/config/rollback", d.page(d.rollback))
	mux.Get("/dashboard/decisions", d.page(d.showDecisions))
	mux.Get("/dashboard/top", d.page(d.showTop))
	mux.Get("/dashboard/conversion", d.page(d.showConversion))
	mux.Get("/dashboard/upstreams", d.page(d.showUpstreams))
	mux.Get("/dashboard/audit", d.page(d.showAudit))
	return mux
}

// headers adds security headers. The referrer policy is not no-referrer: with it, browsers send
// "Origin: null" with forms, which cannot be distinguished from forms of foreign pages if the page
// has no HTTPS.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// static/ holds scripts and styles: our own, and htmx and uPlot as published on npm, with their
// licenses.
//
//go:embed static
var staticFiles embed.FS

// A static serves embedded files by name.
type static map[string]staticFile

type staticFile struct {
	content []byte
	etag    string
}

func readStatic() static {
	s := static{}
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // embedded files can be read
	}
	for _, e := range entries {
		content, err := staticFiles.ReadFile(path.Join("static", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		s[e.Name()] = staticFile{content, `W/"` + hex.EncodeToString(sum[:8]) + `"`} // weak: it may be compressed
	}
	return s
}

// ServeHTTP serves a file without authentication, because the login page needs them. Browsers
// revalidate it on each use, so that an upgrade is visible at once.
func (s static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, found := s[path.Base(r.URL.Path)]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.etag)
	http.ServeContent(w, r, path.Base(r.URL.Path), time.Time{}, bytes.NewReader(f.content))
}

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
	value T
	shown atomic.Bool
}

// flashes are the flashes of this node's pages.
type flashes[T any] struct{ kept[*flash[T]] }

func newFlashes[T any]() flashes[T] {
	return flashes[T]{kept[*flash[T]]{ttl: flashTTL, most: maxFlashes}}
}

// keep returns the id of a new flash.
func (f *flashes[T]) keep(who string, value T, now time.Time) string {
	return f.add(&flash[T]{who: who, value: value}, now)
}

// show returns a flash of an operator, and whether this is the first time.
func (f *flashes[T]) show(id, who string, now time.Time) (value T, first, found bool) {
	at, found := f.find(id, now)
	if !found || at.who != who {
		return value, false, false
	}
	return at.value, !at.shown.Swap(true), true
}

// kept are values by random ids, each for some time. A new one replaces the oldest if there are too many. They are
// in memory: a restart ends them.
type kept[T any] struct {
	ttl  time.Duration
	most int

	mu    sync.Mutex // guards what follows
	byID  map[string]keptValue[T]
	order []string // oldest first
}

type keptValue[T any] struct {
	value T
	until time.Time
}

// add returns the id of a new value.
func (k *kept[T]) add(value T, now time.Time) string {
	id := rand.Text()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		k.byID = map[string]keptValue[T]{}
	}
	for len(k.order) > 0 && (len(k.order) >= k.most || !now.Before(k.byID[k.order[0]].until)) {
		k.removeLocked(k.order[0])
	}
	k.byID[id], k.order = keptValue[T]{value, now.Add(k.ttl)}, append(k.order, id)
	return id
}

// find returns the value with that id, unless its time is over.
func (k *kept[T]) find(id string, now time.Time) (value T, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, found := k.byID[id]
	if found && !now.Before(at.until) {
		k.removeLocked(id)
		return value, false
	}
	return at.value, found
}

// remove removes the value with that id, if there is one.
func (k *kept[T]) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removeLocked(id)
}

func (k *kept[T]) removeLocked(id string) {
	delete(k.byID, id)
	k.order = slices.DeleteFunc(k.order, func(other string) bool { return other == id })
}
