// Package admin serves the operators' side of a proxy: whether it lives and is
// ready, its figures, its reload and its profiles. It listens apart from
// clients.
package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// Options are what the admin side is given. Of Token, Tokens, Hosts, Cluster, Simulate,
// Decisions, Top, Audit, Upstreams, Events and Dashboard there may be none.
type Options struct {
	// Token is asked for, as a bearer token (RFC 6750), before anything is
	// changed, profiled, or told of the cluster: who has it may do all. Without it and
	// Tokens, all that is open to this machine's own programs, but profiles are served
	// to nobody.
	Token string
	// Tokens are those of operators, beside Token, each with what it may do.
	Tokens []Token
	// Hosts are names by which this machine's own programs may ask without a token,
	// besides localhost and loopback addresses.
	Hosts    []string
	Gatherer prometheus.Gatherer
	// Reload reads the configuration again.
	Reload func(ctx context.Context) (Reloaded, error)
	// Cluster moves all nodes from one configuration to another; nil when there
	// is none, and then nothing can be pushed.
	Cluster Cluster
	// Plan tells what would change if the proxy served this.
	Plan func(ctx context.Context, b config.Bundle) (Plan, error)
	// Ready tells what the proxy can do now.
	Ready func(ctx context.Context) Readiness
	// Leader, Nodes and Statistics (of the last minutes) tell of the cluster.
	Leader     func(ctx context.Context) (Leadership, error)
	Nodes      func(ctx context.Context) (Nodes, error)
	Statistics func(ctx context.Context, minutes int) (Statistics, error)
	// Config, Routes and Limits are what this weir serves.
	Config func(ctx context.Context) (Config, error)
	Routes func(ctx context.Context) (Routes, error)
	Limits func(ctx context.Context) (Limits, error)
	// Standing says how a key stands, and Change resets, grants, bans or unbans it.
	// Whoever calls one that changes something, also Reload and those of Cluster, says
	// in ctx who the operator is (WithOperator): it is audited.
	Standing func(ctx context.Context, q proxy.KeyQuery) (proxy.KeyStanding, error)
	Change   func(ctx context.Context, c proxy.KeyChange) (proxy.KeyResult, error)
	// Explain says what would be done with a request, and takes nothing.
	Explain func(ctx context.Context, r proxy.ExplainRequest) (proxy.Explanation, error)
	// Simulate replays an access log; nil for no such thing. AccessLog is the file that
	// this node logs requests to, which it can replay; empty for none.
	Simulate  func(ctx context.Context, q SimulateQuery) (Simulation, error)
	AccessLog string
	// Decisions are what was decided recently, on all nodes; Top the keys that are seen
	// and refused most; Audit what operators did. Each may be nil, and is not found then.
	Decisions func(ctx context.Context, q DecisionQuery) (Decisions, error)
	Top       func(ctx context.Context, q TopQuery) (Top, error)
	Audit     func(ctx context.Context, q AuditQuery) (Audit, error)
	// Upstreams are those that are served, and how their targets fare on all nodes; nil for
	// none.
	Upstreams func(ctx context.Context) (Upstreams, error)
	// Events tells of what happens while it does; nil for none.
	Events *Events
	// Dashboard serves "/" and what is under "/dashboard/"; nil for no pages. It checks
	// who asks itself, by sessions and by a token in each form.
	Dashboard http.Handler
}

// A Readiness is what a proxy can do now.
type Readiness struct {
	// Ready says that requests should be sent here. A proxy whose store is
	// unreachable stays ready: it serves by what its limits say of that.
	Ready bool
	// Checks names each thing that was looked at, and "ok" or what is wrong.
	Checks map[string]string
}

// New makes the handler.
func New(o Options) http.Handler {
	mux := chi.NewMux()
	mux.Use(http.NewCrossOriginProtection().Handler, o.local) // no web page may reload us
	mux.Get("/healthz", healthz)
	mux.Get("/readyz", o.readyz)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.With(o.allow(Write)).Post("/reload", o.reload)
	mux.Route(apiRoot, o.api)
	if o.Dashboard != nil {
		mux.Get("/", o.Dashboard.ServeHTTP)
		mux.Handle("/dashboard", http.RedirectHandler("/", http.StatusSeeOther))
		mux.Handle("/dashboard/*", o.Dashboard)
	}
	if len(o.allowances()) > 0 {
		mux.With(o.allow(Write)).Route("/debug/pprof", profiles)
	}
	return mux
}

func profiles(mux chi.Router) {
	mux.HandleFunc("/cmdline", pprof.Cmdline)
	mux.HandleFunc("/profile", pprof.Profile)
	mux.HandleFunc("/symbol", pprof.Symbol)
	mux.HandleFunc("/trace", pprof.Trace)
	mux.HandleFunc("/*", pprof.Index)
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n"))
}

// reload reads the configuration again: 200 with what is served now, or 422
// with every problem of the files; then nothing has changed.
func (o Options) reload(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusConflict, func() (Reloaded, error) { return o.Reload(r.Context()) })
}

func (o Options) readyz(w http.ResponseWriter, r *http.Request) {
	state := o.Ready(r.Context())
	status, word := http.StatusOK, "ok"
	for _, check := range state.Checks {
		if check != "ok" {
			word = "degraded"
		}
	}
	if !state.Ready {
		status, word = http.StatusServiceUnavailable, "not ready"
	}
	reply(w, status, "application/json", Health{Status: word, Checks: state.Checks})
}

// reply sends v as JSON.
func reply[T any](w http.ResponseWriter, status int, contentType string, v T) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
