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
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A dashboard serves all pages.
type dashboard struct {
	admin.Options
	sessions kept[session]
	gauge    *rateGauge
	last     memories
	flashes  kept[*flash]
	// Templates are parsed on first use: they take a megabyte of memory, and most nodes never show a page.
	pages func() pages
}

// New returns the handler of "/" and all paths below "/dashboard/". It must be wrapped by the admin
// handler, which checks the host, and that no page of another origin has sent a form.
func New(o admin.Options) http.Handler {
	d := &dashboard{
		Options: o, sessions: kept[session]{ttl: sessionTTL, most: maxSessions}, gauge: &rateGauge{from: o.Gatherer, readings: []reading{{At: time.Now()}}},
		flashes: kept[*flash]{ttl: flashTTL, most: maxFlashes}, pages: sync.OnceValue(parsePages),
	}
	mux := chi.NewMux()
	// The referrer policy is not no-referrer: with it, browsers send "Origin: null" with forms, which cannot be distinguished from
	// forms of foreign pages if the page has no HTTPS.
	for name, value := range map[string]string{
		"Content-Security-Policy":      "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	} {
		mux.Use(middleware.SetHeader(name, value))
	}
	mux.NotFound(d.page(noPage))
	mux.Get("/dashboard/static/{name}", serveStatic)
	mux.Get("/dashboard/login", d.loginForm)
	mux.Post("/dashboard/login", d.login)
	mux.Post("/dashboard/logout", d.logout)
	mux.Get("/", d.page(d.showOverview))
	mux.Get("/dashboard/series", d.protect(d.serveSeries))
	mux.Get("/dashboard/events", d.protect(d.Stream))
	mux.Get("/dashboard/routes", d.page(d.showRoutes))
	mux.Get("/dashboard/keys", d.page(d.showKeys))
	mux.Post("/dashboard/keys", d.page(func(r *http.Request) page { return d.toKey(r, keyFlash{Query: queryOf(r)}) }))
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

// static/ holds scripts and styles: our own, and htmx and uPlot as published on npm, with their
// licenses.
//
//go:embed static
var staticFiles embed.FS

// serveStatic serves an embedded file without authentication, because the login page needs them. Browsers
// revalidate it on each use, so that an upgrade is visible at once.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	content, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `W/"`+hex.EncodeToString(sum[:8])+`"`) // weak: it may be compressed
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

const (
	// flashTTL is how long the state of a page is kept, and maxFlashes the maximum number of them; a new
	// one replaces the oldest.
	flashTTL   = time.Hour
	maxFlashes = 1500
)

// A flash is what a form has led to: a keyFlash, configFlash or directiveFlash. A form is answered with a redirect to
// the page, whose address names the flash (POST, redirect, GET): reloading that page repeats nothing, and its address
// has no key.
type flash struct {
	who   string // the operator, who alone may see it
	value any
	shown atomic.Bool
}

// keep returns the id of a new flash for who sent r.
func (d *dashboard) keep(r *http.Request, value any) string {
	return d.flashes.add(&flash{who: sessionOf(r).Name, value: value}, time.Now())
}

// flashOf returns the flash that the query of r names in a parameter, if it is one of who sent r, and whether it is
// shown for the first time.
func flashOf[T any](d *dashboard, r *http.Request, parameter string) (value T, first, found bool) {
	f, found := d.flashes.find(r.URL.Query().Get(parameter), time.Now())
	if !found || f.who != sessionOf(r).Name {
		return value, false, false
	}
	value, found = f.value.(T)
	return value, found && !f.shown.Swap(true), found
}

// kept are values by random ids, each for some time. A new one replaces the oldest if there are too many. They are
// in memory: a restart ends them.
type kept[T any] struct {
	ttl  time.Duration
	most int

	mu  sync.Mutex     // guards what follows
	all []keptValue[T] // oldest first
}

type keptValue[T any] struct {
	id    string
	value T
	until time.Time
}

// add returns the id of a new value.
func (k *kept[T]) add(value T, now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endLocked(now)
	if len(k.all) >= k.most {
		k.all = slices.Delete(k.all, 0, 1)
	}
	one := keptValue[T]{rand.Text(), value, now.Add(k.ttl)}
	k.all = append(k.all, one)
	return one.id
}

// find returns the value with that id, unless its time is over.
func (k *kept[T]) find(id string, now time.Time) (value T, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endLocked(now)
	for _, one := range k.all {
		if one.id == id {
			return one.value, true
		}
	}
	return value, false
}

// remove removes the value with that id, if there is one.
func (k *kept[T]) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(one keptValue[T]) bool { return one.id == id })
}

// endLocked removes the values whose time is over.
func (k *kept[T]) endLocked(now time.Time) {
	k.all = slices.DeleteFunc(k.all, func(one keptValue[T]) bool { return !now.Before(one.until) })
}

// maxForm is the maximum length of a form in bytes: the longest is a request to explain.
const maxForm = 1 << 20

type sessionKey struct{}

// sessionOf returns the session of an authenticated request.
func sessionOf(r *http.Request) session {
	s, _ := r.Context().Value(sessionKey{}).(session)
	return s
}

// protect returns a handler that requires a session, and reads the form.
func (d *dashboard) protect(next http.HandlerFunc) http.HandlerFunc {
	return d.requireSession(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || d.readForm(w, r) {
			next(w, r)
		}
	})
}

// requireSession returns a handler that requires a session. If no tokens are configured, it allows all
// requests that the admin handler allows: programs on this machine have the same rights as in the API.
func (d *dashboard) requireSession(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, found := session{Operator: admin.Operator{Name: admin.Local, Role: admin.Write}}, true
		if d.Guarded() {
			s, found = d.sessions.find(cookie(r), time.Now())
		}
		if !found {
			d.sendToLogin(w, r)
			return
		}
		s.Address = r.RemoteAddr
		next(w, r.WithContext(admin.WithOperator(context.WithValue(r.Context(), sessionKey{}, s), s.Operator)))
	}
}

// readForm reads a form. If it cannot be read, it has sent the error response.
func (d *dashboard) readForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if err != nil {
		d.show(w, r, page{name: "problem", title: "Too long", status: http.StatusRequestEntityTooLarge, data: "the form cannot be read: " + err.Error()})
	}
	return err == nil
}

// sendToLogin redirects to the login page, which leads back to the page that was asked for, or that has sent
// the form. If only the live part of a page was requested, the whole page is redirected.
func (d *dashboard) sendToLogin(w http.ResponseWriter, r *http.Request) {
	live := r.Header.Get("HX-Request") != ""
	from := r.URL.RequestURI()
	switch {
	case live:
		from = r.Header.Get("HX-Current-URL")
	case r.Method == http.MethodPost:
		from = r.Referer()
	}
	at := "/dashboard/login"
	if then := pageOf(from); then != "/" {
		at += "?then=" + url.QueryEscape(then)
	}
	if live {
		w.Header().Set("HX-Redirect", at)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// pageOf returns path and query of an address if it is one of a page, and "/" otherwise. The host is left
// out: nothing leads to another site.
func pageOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Path != "/" && !strings.HasPrefix(u.Path, "/dashboard/") || strings.HasPrefix(u.Path, "/dashboard/log") {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).RequestURI()
}

// A loginView is the data of the login page.
type loginView struct {
	Then  string // the requested page
	Wrong bool   // the token was wrong
	Wait  bool   // the address has sent too many wrong tokens; this one was not compared
}

func (d *dashboard) loginForm(w http.ResponseWriter, r *http.Request) {
	if !d.Guarded() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	d.show(w, r, page{name: "login", title: "Log in", data: loginView{Then: r.URL.Query().Get("then")}})
}

// login starts a session with a new id if the token is valid, so that an id planted before (session
// fixation) is useless.
func (d *dashboard) login(w http.ResponseWriter, r *http.Request) {
	if !d.readForm(w, r) {
		return
	}
	then := r.PostForm.Get("then")
	a := d.Authenticate(r, strings.TrimSpace(r.PostForm.Get("token")))
	if !a.Known {
		wrong := page{name: "login", title: "Log in", status: http.StatusUnauthorized, data: loginView{Then: then, Wrong: a.Wait == 0, Wait: a.Wait > 0}}
		if a.Wait > 0 {
			a.SetRetryAfter(w.Header())
			wrong.status = http.StatusTooManyRequests
		}
		d.show(w, r, wrong)
		return
	}
	d.sessions.remove(cookie(r))
	setCookie(w, r, d.sessions.add(session{Operator: a.Operator, Login: true}, time.Now()))
	http.Redirect(w, r, pageOf(then), http.StatusSeeOther) // #nosec G710 -- pageOf leaves the host out
}

func (d *dashboard) logout(w http.ResponseWriter, r *http.Request) {
	d.sessions.remove(cookie(r))
	setCookie(w, r, "")
	http.Redirect(w, r, "/dashboard/login", http.StatusSeeOther)
}

const (
	// sessionTTL is the lifetime of a session, and maxSessions the maximum number of sessions; a
	// new one ends the oldest.
	sessionTTL  = 12 * time.Hour
	maxSessions = 1000
)

// A session is an authenticated browser.
type session struct {
	admin.Operator
	Login bool // started by a login, and can be ended by a logout
}

// Write reports whether the operator may make changes.
func (s session) Write() bool { return s.Role == admin.Write }

// cookieName returns the name of the session cookie. It contains the port, because browsers send
// cookies to all ports of a host and several weirs may run on one. Over TLS it has the prefix
// __Host-, with which browsers guarantee that only this host has set it.
func cookieName(r *http.Request) string {
	name := "weir-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		name = "__Host-" + name
	}
	return name
}

// cookie returns the value of the session cookie of r.
func cookie(r *http.Request) string {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie with the lifetime of a session; an empty value deletes it.
func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(sessionTTL / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- without TLS a browser would not store a secure cookie
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}
