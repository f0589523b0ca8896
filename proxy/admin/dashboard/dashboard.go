// Package dashboard implements the dashboard of the admin listener: current traffic,
// limited keys and the reasons, and actions to unblock keys.
//
// Pages are rendered on the server and work without scripts; scripts update numbers and
// draw charts.
package dashboard

import (
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A dashboard serves all pages.
type dashboard struct {
	admin.Options
	sessions *sessions
	gauge    *gauge
	// Embedded files are loaded on first use: they take a megabyte, and most nodes never
	// need them.
	pages  func() pages
	static func() static
}

// New returns the handler of "/" and of all paths below "/dashboard/". It relies on the
// admin handler around it, which checks the host and the origin of forms.
func New(o admin.Options) http.Handler {
	d := &dashboard{
		Options: o, sessions: newSessions(), gauge: newGauge(o.Gatherer),
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
	mux.Get("/dashboard/series", d.inside(d.serveSeries))
	if d.Events != nil {
		mux.Get("/dashboard/events", d.inside(d.Stream))
	}
	mux.Get("/dashboard/routes", d.page(d.showRoutes))
	mux.Get("/dashboard/keys", d.page(d.showKeyForm))
	mux.Post("/dashboard/keys", d.page(d.lookUp))
	mux.Post("/dashboard/keys/change", d.page(d.changeKey))
	mux.Get("/dashboard/explain", d.page(d.showExplainForm))
	mux.Post("/dashboard/explain", d.page(d.explain))
	if d.Simulate != nil {
		mux.Get("/dashboard/simulate", d.page(d.showSimulateForm))
		mux.Post("/dashboard/simulate", d.known(d.simulate))
	}
	mux.Get("/dashboard/nodes", d.page(d.showNodes))
	mux.Get("/dashboard/config", d.page(d.showConfig))
	mux.Post("/dashboard/config/rollback", d.page(d.rollback))
	if d.Decisions != nil {
		mux.Get("/dashboard/decisions", d.page(d.showDecisions))
	}
	if d.Top != nil {
		mux.Get("/dashboard/top", d.page(d.showTop))
	}
	if d.Upstreams != nil {
		mux.Get("/dashboard/upstreams", d.page(d.showUpstreams))
	}
	if d.Audit != nil {
		mux.Get("/dashboard/audit", d.page(d.showAudit))
	}
	return mux
}

// headers sets security header fields. The referrer policy is not no-referrer: browsers
// would send forms with "Origin: null", so that a cross-site form could not be recognized
// on a page without HTTPS.
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
