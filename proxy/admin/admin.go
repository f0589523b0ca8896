// Package admin implements the admin API: liveness, readiness, metrics, reload, profiles, and the
// operations of operators. It has listeners of its own.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// Options configure the admin API. Token, Tokens, WrongTokens, Hosts, Context, Cluster, Self, AccessLog and Dashboard are optional.
type Options struct {
	// Token is the bearer token (RFC 6750) for all operations. It is required for every request
	// that changes something, takes a profile, or reads the state of the cluster. If neither Token
	// nor Tokens is set, programs on this machine need no token, but profiles are not served at
	// all.
	Token string
	// Tokens are further tokens of operators, each with a role.
	Tokens []config.Token
	// WrongTokens slows addresses that send wrong tokens; nil slows nobody.
	WrongTokens *WrongTokens
	// Hosts are host names by which programs on this machine may send requests without a token,
	// besides localhost and loopback addresses.
	Hosts    []string
	Gatherer prometheus.Gatherer
	// Context returns the context of a request; nil for that of the connection.
	Context func(ctx context.Context) context.Context
	// Reload reloads the configuration.
	Reload func(ctx context.Context) (Reloaded, error)
	// Cluster changes the configuration of all nodes; nil without a cluster, where nothing can be
	// pushed.
	Cluster Cluster
	// Plan returns what would change if the proxy served a configuration.
	Plan func(ctx context.Context, b bundle.Bundle) (Plan, error)
	// Ready returns the readiness of the proxy, without Status.
	Ready func(ctx context.Context) Health
	// Leader, Nodes and Statistics (of the last minutes) return the state of the cluster.
	Leader     func(ctx context.Context) (view.Leadership, error)
	Nodes      func(ctx context.Context) (Nodes, error)
	Statistics func(ctx context.Context, minutes int) (view.Statistics, error)
	// Self returns this node, also while the state of the cluster is unknown; may be nil.
	Self func() view.Member
	// Config, Routes and Limits return the configuration of this node.
	Config func(ctx context.Context) (view.Config, error)
	Routes func(ctx context.Context) (view.Routes, error)
	Limits func(ctx context.Context) (view.Limits, error)
	// Standing returns the state of a key, and Change resets, grants, bans or unbans it. The
	// callers of functions that change something, including Reload and those of Cluster, add the
	// operator to ctx (WithOperator), for the audit trail.
	Standing func(ctx context.Context, q view.KeyQuery) (view.KeyStanding, error)
	Change   func(ctx context.Context, c view.KeyChange) (view.KeyResult, error)
	// Outcome returns the permits of the requests for a subject, as a response of another route does.
	Outcome func(ctx context.Context, o proxy.Outcome) (proxy.OutcomeResult, error)
	// Bans returns the bans of networks, Plans the plans that were assigned to keys, Maintenance the routes under maintenance, and SetMaintenance begins or
	// ends it, as Change does.
	Bans           func(ctx context.Context) (Bans, error)
	Plans          func(ctx context.Context) (Plans, error)
	Maintenance    func(ctx context.Context) (Maintenance, error)
	SetMaintenance func(ctx context.Context, c MaintenanceChange) (Maintenance, error)
	// Explain reports what would be done with a request, without side effects.
	Explain func(ctx context.Context, r view.ExplainRequest) (view.Explanation, error)
	// Simulate replays an access log. AccessLog is the access log file of this node, which can be replayed; empty if
	// there is none.
	Simulate  func(ctx context.Context, q SimulateQuery) (Simulation, error)
	AccessLog string
	// Decisions returns recent decisions of all nodes, Top the keys with most requests and most
	// refusals, and Audit the actions of operators.
	Decisions func(ctx context.Context, q view.DecisionQuery) (view.Decisions, error)
	Top       func(ctx context.Context, q view.TopQuery) (view.Top, error)
	Audit     func(ctx context.Context, q view.AuditQuery) (view.Audit, error)
	// Conversion returns what became of the requests of limits with return_on.
	Conversion func(ctx context.Context, q sends.Query) (Conversion, error)
	// Upstreams returns the upstreams of this node, with the state of their targets on all nodes.
	Upstreams func(ctx context.Context) (view.Upstreams, error)
	// Once remembers changes by their Idempotency-Key.
	Once Once
	// Events publishes events to subscribers.
	Events *Events
	// Dashboard serves "/" and all paths below "/dashboard/"; nil if there is none. It
	// authenticates requests itself, by sessions.
	Dashboard http.Handler
}

// New returns the handler of the admin API.
func New(o Options) http.Handler {
	mux := chi.NewMux()
	if o.Context != nil {
		mux.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(o.Context(r.Context()))) })
		})
	}
	mux.Use(http.NewCrossOriginProtection().Handler, o.requireLocal) // rejects requests of foreign web pages
	// Other sites cannot make a browser send the session's cookie (SameSite=Strict), and so cannot learn
	// of the length of a compressed page (BREACH). Events are not compressed: they must not wait.
	mux.Use(middleware.Compress(5, "text/html", "text/css", "text/javascript", "image/svg+xml", "application/json", "application/problem+json"), middleware.GetHead)
	mux.Get("/healthz", healthz)
	mux.Get("/readyz", o.readyz)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.With(o.requireRole(Write)).Post("/reload", o.reload)
	mux.Route(apiRoot, o.api)
	if o.Dashboard != nil {
		mux.Get("/", o.Dashboard.ServeHTTP)
		mux.Handle("/dashboard", http.RedirectHandler("/", http.StatusSeeOther))
		mux.Get("/dashboard/*", o.Dashboard.ServeHTTP)
		mux.Post("/dashboard/*", o.Dashboard.ServeHTTP)
	}
	if len(o.tokenHashes()) > 0 {
		mux.With(o.requireRole(Write)).Mount("/debug", middleware.Profiler())
	}
	return mux
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n"))
}

// reload reloads the configuration. It responds with 200 and the current generation, or with 422
// and all problems of the files, in which case nothing has changed.
func (o Options) reload(w http.ResponseWriter, r *http.Request) {
	respond(w, http.StatusConflict, func() (Reloaded, error) { return o.Reload(r.Context()) })
}

func (o Options) readyz(w http.ResponseWriter, r *http.Request) {
	health, status := o.Ready(r.Context()), http.StatusOK
	health.Status = "ok"
	for _, check := range health.Checks {
		if check != "ok" {
			health.Status = "degraded"
		}
	}
	if !health.Ready {
		status, health.Status = http.StatusServiceUnavailable, "not ready"
	}
	reply(w, status, "application/json", health)
}

// reply writes v as JSON.
func reply[T any](w http.ResponseWriter, status int, contentType string, v T) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// A Role is the set of operations that an operator may use.
type Role string

// The roles.
const (
	Read  Role = "read"  // read, and evaluate without changes
	Write Role = "write" // also change
)

// An Operator is the sender of a request to the admin API.
type Operator struct {
	Name    string // the name of the token; Local without one
	Address string // remote address of the connection, HOST:PORT
	Role    Role
}

// Local is the name of operators on this machine if no tokens are configured, and Admin the name of
// the operator with Options.Token.
const (
	Local = "local"
	Admin = "admin"
)

// operatorKey is the context key of the operator.
type operatorKey struct{}

// WithOperator returns ctx with the operator o.
func WithOperator(ctx context.Context, o Operator) context.Context {
	return context.WithValue(ctx, operatorKey{}, o)
}

// OperatorOf returns the operator of ctx, or Local.
func OperatorOf(ctx context.Context) Operator {
	o, _ := ctx.Value(operatorKey{}).(Operator)
	o.Name = cmp.Or(o.Name, Local)
	return o
}

// A Problem is an error response of the API: a problem document (RFC 9457). The API serves
// operators, so it may contain all details. It is an error on both sides: functions of a server
// return one to choose the status and the details, and a Client returns the one it received.
type Problem struct {
	Author   string            `json:"author,omitempty"` // author of the push in progress
	Detail   string            `json:"detail"`
	Live     []view.Member     `json:"live,omitempty"`     // the node that responds, where it cannot list the others
	Node     string            `json:"node,omitempty"`     // node of the push in progress
	Nodes    []view.NodeAnswer `json:"nodes,omitempty"`    // answers of the nodes to a push
	Problems []string          `json:"problems,omitempty"` // all problems of a configuration
	Status   int               `json:"status"`
	Title    string            `json:"title"`
	Type     string            `json:"type"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// send responds with p, whose Status and Detail must be set.
func (p Problem) send(w http.ResponseWriter) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	reply(w, p.Status, "application/problem+json", p)
}

// problem responds with a status and a detail.
func problem(w http.ResponseWriter, status int, detail string) {
	Problem{Status: status, Detail: detail}.send(w)
}

// Texts returns problems as weir check prints them.
func Texts(problems config.Problems) []string { return view.Each(problems, config.Problem.String) }

// problemOf converts an error to a Problem; other is the status of an unknown error.
func problemOf(err error, other int) Problem {
	var problems config.Problems
	var known *Problem
	switch {
	case errors.As(err, &problems):
		lines := Texts(problems)
		return Problem{Status: http.StatusUnprocessableEntity, Detail: lines[0], Problems: lines}
	case errors.Is(err, bundle.ErrInvalid):
		return Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.As(err, &known):
		return *known
	}
	for _, kind := range []error{view.ErrKeyQuery, proxy.ErrExplain} {
		if errors.Is(err, kind) {
			return Problem{Status: http.StatusBadRequest, Detail: strings.TrimPrefix(err.Error(), kind.Error()+": ")}
		}
	}
	return Problem{Status: other, Detail: proxy.ErrorText(err)}
}

// respond responds with the result of ask, or with its error. The status of an unknown error is
// other.
func respond[T any](w http.ResponseWriter, other int, ask func() (T, error)) {
	v, err := ask()
	if err != nil {
		problemOf(err, other).send(w)
		return
	}
	reply(w, http.StatusOK, "application/json", v)
}
