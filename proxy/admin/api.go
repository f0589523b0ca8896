package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// apiRoot is the path prefix of the API.
const apiRoot = "/api/v1"

// An endpoint is one operation of the API. The router and the OpenAPI document are both generated
// from one table of endpoints, so that they always agree.
type endpoint struct {
	method, path string // relative to apiRoot
	role         Role
	summary      string
	parameters   []parameter
	request      reflect.Type // request type: JSON, or a form; nil without a body
	form         bool         // the request is sent as multipart/form-data
	response     reflect.Type // response type: JSON, or the events of a stream
	stream       bool
	maxBody      int64 // bytes of the request; maxBody if it is 0
	handle       http.HandlerFunc
}

// endpoints returns all endpoints of the API.
func (o Options) endpoints() []endpoint {
	return []endpoint{
		readEndpoint("/config", "The configuration of this node, with all defaults; secrets are masked, and environment variables are named.", o.Config),
		readEndpoint("/routes", "The routes of this node.", o.Routes),
		readEndpoint("/limits", "The limits of all routes of this node.", o.Limits),
		readEndpoint("/nodes", "The live nodes and their configurations, and the nodes that were lost in the last hour.", o.Nodes),
		readEndpoint("/leader", "The leader, and the runs of its tasks.", o.Leader),
		readEndpoint("/upstreams", "The upstreams of this node, and the health of their targets on all nodes.", o.Upstreams),
		urlQueryEndpoint("/statistics", "Statistics of the last minutes, for all nodes together.", statisticsQuery, o.Statistics),
		urlQueryEndpoint("/decisions", "Decisions about recent requests on all nodes, newest first.", decisionQuery, o.Decisions),
		urlQueryEndpoint("/top", "The keys with most requests and most refusals, by limit, on all nodes together. Limits with most refusals come first; keys whose count is uncertain are left out.", topQuery, o.Top),
		urlQueryEndpoint("/conversion", "What became of the requests that limits with return_on count, such as codes that are sent: within the longest window of each limit, of all keys and of those with most requests, on all nodes together.", conversionQuery, o.Conversion),
		urlQueryEndpoint("/audit", "The audit trail, newest first.", auditQuery, o.Audit),
		o.events(),
		queryEndpoint("/explain", "Explain what would happen to a request, and why. Takes no permits.", o.Explain),
		o.simulate(),
		queryEndpoint("/plan", "What would change if this configuration were served, and which keys would be refused now.", o.plan).withMaxBody(maxBundleBody).exclusive("another plan is in progress on this node; try again later"),
		queryEndpoint("/keys/inspect", "The state of a key under all limits that count by it. It is a POST because a value in a URL would appear in the logs of intermediaries.", o.Inspect),
		writeEndpoint("/keys/reset", "Reset the counts and bans of a key on all nodes.", o.change(view.KeyReset)).idempotent(o.Once),
		writeEndpoint("/keys/grant", "Grant permits to a key, up to its limit, on all nodes.", o.grant).idempotent(o.Once),
		writeEndpoint("/keys/ban", "Ban a key for some time on all nodes.", o.ban).idempotent(o.Once),
		writeEndpoint("/keys/unban", "End the bans of a key on all nodes; its counts stay.", o.change(view.KeyUnban)).idempotent(o.Once),
		writeEndpoint("/keys/plan", "Assign a plan to a key for some time on all nodes. It takes precedence over the plan that a limit reads.", o.assign).idempotent(o.Once),
		writeEndpoint("/keys/unplan", "End the assignment of a plan to a key on all nodes.", o.change(view.KeyUnassign)).idempotent(o.Once),
		readEndpoint("/keys/plans", "The plans that operators have assigned to keys.", o.Plans),
		writeEndpoint("/outcomes", "Tell what became of earlier requests: an outcome verified returns the permits that limits with return_on have taken for this value, as a response of the route that return_on names does.", o.Outcome).idempotent(o.Once),
		readEndpoint("/bans", "The networks that are banned. Bans of keys are with each key.", o.Bans),
		readEndpoint("/maintenance", "The routes under maintenance.", o.Maintenance),
		writeEndpoint("/maintenance", "Begin or end maintenance of a route, or of all: requests are answered with 503 on all nodes.", o.SetMaintenance),
		o.reloading(),
		requiresCluster(o, writeEndpoint("/push", "Make all nodes serve a configuration, or none. With dry_run it is only checked.", o.push)).withMaxBody(maxBundleBody),
		requiresCluster(o, writeEndpoint("/rollback", "Make all nodes serve an earlier generation.", o.rollback)),
		requiresCluster(o, readEndpoint("/history", "The pushes, newest first.", o.history)),
		requiresCluster(o, readEndpoint("/history/{generation}", "The changes of files in a generation.", o.diff)),
	}
}

// api adds the API to mux.
func (o Options) api(mux chi.Router) {
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "there is no "+r.URL.Path+"; GET "+apiRoot+"/openapi.json tells what there is")
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allowed := slices.DeleteFunc([]string{http.MethodGet, http.MethodPost}, func(method string) bool {
			return !mux.Match(chi.NewRouteContext(), method, strings.TrimPrefix(r.URL.Path, apiRoot))
		})
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem(w, http.StatusMethodNotAllowed, r.Method+" is not for "+r.URL.Path+"; use "+strings.Join(allowed, " or "))
	})
	endpoints := o.endpoints()
	for _, e := range endpoints {
		mux.With(o.requireRole(e.role), middleware.RequestSize(cmp.Or(e.maxBody, maxBody))).Method(e.method, e.path, e.handle)
	}
	document := sync.OnceValue(func() object { return openAPI(endpoints) }) // 350 KB that are rarely needed
	mux.With(o.requireRole(Read)).Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "application/json", document())
	})
}

// readEndpoint returns an endpoint that reads something and has no parameters.
func readEndpoint[A any](path, summary string, ask func(ctx context.Context) (A, error)) endpoint {
	none := func(*struct{}) []parameter { return nil }
	return urlQueryEndpoint(path, summary, none, func(ctx context.Context, _ struct{}) (A, error) { return ask(ctx) })
}

// urlQueryEndpoint returns an endpoint that reads something according to the query of its URL, which has these
// parameters.
func urlQueryEndpoint[Q, A any](path, summary string, of func(q *Q) []parameter, ask func(ctx context.Context, q Q) (A, error)) endpoint {
	return endpoint{
		method: http.MethodGet, path: path, role: Read, summary: summary, parameters: of(new(Q)), response: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			var q Q
			if readQuery(w, r, of(&q)) {
				respond(w, http.StatusServiceUnavailable, func() (A, error) { return ask(r.Context(), q) })
			}
		},
	}
}

// queryEndpoint returns an endpoint that reads something according to its request body.
func queryEndpoint[Q, A any](path, summary string, ask func(ctx context.Context, q Q) (A, error)) endpoint {
	return endpoint{
		method: http.MethodPost, path: path, role: Read, summary: summary,
		request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			var q Q
			if readQuery(w, r, nil) && read(w, r, &q) {
				respond(w, http.StatusServiceUnavailable, func() (A, error) { return ask(r.Context(), q) })
			}
		},
	}
}

// writeEndpoint returns an endpoint that changes something.
func writeEndpoint[Q, A any](path, summary string, do func(ctx context.Context, q Q) (A, error)) endpoint {
	e := queryEndpoint(path, summary, do)
	e.role = Write
	return e
}

// withMaxBody returns e with another limit for the request body than maxBody.
func (e endpoint) withMaxBody(most int64) endpoint {
	e.maxBody = most
	return e
}

// requiresCluster returns e, or an endpoint that says how to enable pushes.
func requiresCluster(o Options, e endpoint) endpoint {
	if o.Cluster == nil {
		e.handle = func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusConflict, "this weir serves its own file: edit that; to push, write reload: {source: redis} beside store: redis, and restart it")
		}
	}
	return e
}

const (
	// maxBundleBody is the maximum length of a request with a bundle in bytes. JSON escapes the
	// content of the files.
	maxBundleBody = 2*bundle.MaxSize + 1<<20
	// maxBody is the maximum length of other requests: those to explain contain a body.
	maxBody = 4 << 20
)

// read decodes the body of a request, one JSON value without unknown fields. If that fails, it
// sends the error response and returns false.
func read[T any](w http.ResponseWriter, r *http.Request, v *T) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("trailing data after the JSON value")
		}
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("longer than %d bytes", long.Limit))
	case errors.Is(err, io.EOF):
		problem(w, http.StatusBadRequest, "there is no body; send JSON, as GET "+apiRoot+"/openapi.json tells")
	case err != nil:
		problem(w, http.StatusBadRequest, "not understood: "+err.Error())
	}
	return err == nil
}

// A parameter is a query parameter, or a header field.
type parameter struct {
	name, summary string
	in            string   // header; query if it is empty
	to            any      // where its value is written to: *string, *int or *time.Time
	max           int      // of an int, which is at least 1
	enum          []string // of a string
}

// readQuery reads the query of r, and reports whether it has only these parameters, each at most once and valid. If
// not, it has sent the error response.
func readQuery(w http.ResponseWriter, r *http.Request, all []parameter) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		problem(w, http.StatusBadRequest, "not a query: "+err.Error())
		return false
	}
	names := view.Each(all, func(p parameter) string { return p.name })
	for name, values := range query {
		i := slices.Index(names, name)
		why := ""
		switch {
		case i < 0 && len(all) == 0:
			why = fmt.Sprintf("there is no parameter %q; leave it out", name)
		case i < 0:
			why = fmt.Sprintf("there is no parameter %q; write one of %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			why = name + " is there twice; write it once"
		default:
			why = all[i].set(values[0])
		}
		if why != "" {
			problem(w, http.StatusBadRequest, why)
			return false
		}
	}
	return true
}

// set sets the value, and returns why it is not valid. An empty one counts as absent.
func (p parameter) set(value string) string {
	if value == "" {
		return ""
	}
	switch to := p.to.(type) {
	case *int:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > p.max {
			return fmt.Sprintf("%s=%s is no number of that; write 1 to %d", p.name, value, p.max)
		}
		*to = n
	case *time.Time:
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return fmt.Sprintf("%s=%s is no time; write for example 2026-01-31T09:30:00Z", p.name, value)
		}
		*to = at
	case *string:
		if p.enum != nil && !slices.Contains(p.enum, value) {
			return fmt.Sprintf("%s=%s is none; write one of %s", p.name, value, strings.Join(p.enum, ", "))
		}
		*to = value
	}
	return ""
}

const (
	// maxMinutes is one day, for which statistics are kept; defaultMinutes is the default number of
	// minutes.
	maxMinutes     = 24 * 60
	defaultMinutes = 60
	// TopMinutes is the number of minutes for which keys are counted, MaxRows the maximum number
	// of keys of a limit and of decisions in one response, and MaxAudited that of audit entries.
	TopMinutes = 15
	MaxRows    = 1000
	MaxAudited = 500
)

// statisticsQuery has the parameters of a query for statistics of so many minutes.
func statisticsQuery(minutes *int) []parameter {
	*minutes = defaultMinutes
	return []parameter{{name: "minutes", summary: "The last so many; 60 when it is left out.", to: minutes, max: maxMinutes}}
}

func decisionQuery(q *view.DecisionQuery) []parameter {
	outcomes := []string{"allowed", "refused", "shadow_refused", "rejected"}
	return []parameter{
		{name: "request_id", summary: "Only the request with that id.", to: &q.RequestID},
		{name: "route", summary: "Only requests of that route; none for those that no route matched.", to: &q.Route},
		{name: "limit", summary: "Only requests of which that limit was asked.", to: &q.Limit},
		{name: "outcome", summary: "Only requests with that outcome.", to: &q.Outcome, enum: outcomes},
		{name: "key", summary: "Only requests with the key of that hash or id.", to: &q.Key},
		{name: "before", summary: "Only requests that came before.", to: &q.Before},
		{name: "n", summary: "At most so many; 100 when it is left out.", to: &q.N, max: MaxRows},
	}
}

func topQuery(q *view.TopQuery) []parameter {
	return []parameter{
		{name: "route", summary: "Only limits of that route.", to: &q.Route},
		{name: "limit", summary: "Only limits of that name.", to: &q.Limit},
		{name: "minutes", summary: "The last so many; all that are known when it is left out.", to: &q.Minutes, max: TopMinutes},
		{name: "n", summary: "At most so many keys of a limit; 20 when it is left out.", to: &q.N, max: MaxRows},
	}
}

func conversionQuery(q *sends.Query) []parameter {
	return []parameter{
		{name: "route", summary: "Only limits of that route.", to: &q.Route},
		{name: "limit", summary: "Only limits of that name.", to: &q.Limit},
		{name: "n", summary: "At most so many keys of a limit; 20 when it is left out.", to: &q.N, max: MaxRows},
	}
}

func auditQuery(q *view.AuditQuery) []parameter {
	return []parameter{
		{name: "before", summary: "Only entries before the one with that id.", to: &q.Before},
		{name: "n", summary: "At most so many; 100 when it is left out.", to: &q.N, max: MaxAudited},
	}
}

// diff returns the changes of the generation that the path names.
func (o Options) diff(ctx context.Context) (Diff, error) {
	n, err := strconv.ParseInt(chi.URLParamFromCtx(ctx, "generation"), 10, 64)
	if err != nil {
		return Diff{}, &Problem{Status: http.StatusNotFound, Detail: "a generation is a number; GET /api/v1/history lists them"}
	}
	return o.Cluster.Diff(ctx, n)
}

func (o Options) history(ctx context.Context) (History, error) { return o.Cluster.History(ctx) }

// requireLocal returns a middleware that allows requests of programs on this machine, as far as they can
// be recognized without a token. A web page can also reach a loopback address, by resolving its own
// name to that address (DNS rebinding). Then Host has that name, and requests that change something
// have fields that only browsers send.
func (o Options) requireLocal(next http.Handler) http.Handler {
	if len(o.tokenHashes()) > 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.isLocalName(r.Host) {
			problem(w, http.StatusMisdirectedRequest, fmt.Sprintf("without admin.token only this machine is answered, and %q is not its name; ask 127.0.0.1, or write the name into admin.hosts, or set admin.token", r.Host))
			return
		}
		if field := browserField(r); field != "" && !isDashboard(r) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			problem(w, http.StatusForbidden, "without admin.token no web page may change anything, and "+field+" says that this is one; set admin.token, or use weir or curl")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether host, with or without a port, is one that programs on this machine use.
// HTTP/1.0 requests may have none; browsers always send one.
func (o Options) isLocalName(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	addr, _ := netip.ParseAddr(host) // of a name it is that of no host
	return addr.Unmap().IsLoopback() || host == "localhost" || slices.ContainsFunc(o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// isDashboard reports whether r is for the dashboard, whose forms are sent by browsers. The dashboard
// recognizes its own forms by a token, which foreign pages cannot read.
func isDashboard(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/dashboard/") }

// browserField returns the name of a field that only browsers send, or "".
func browserField(r *http.Request) string {
	for name := range r.Header {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			return name
		}
	}
	return ""
}
