package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	query        []parameter
	header       []parameter
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
		readEndpoint("/config", "The configuration of this node, with all defaults; secrets are masked.", o.Config),
		readEndpoint("/routes", "The routes of this node.", o.Routes),
		readEndpoint("/limits", "The limits of all routes of this node.", o.Limits),
		readEndpoint("/nodes", "The live nodes and their configurations, and the nodes that were lost in the last hour.", o.Nodes),
		readEndpoint("/leader", "The leader, and the runs of its tasks.", o.Leader),
		readEndpoint("/upstreams", "The upstreams of this node, and the health of their targets on all nodes.", o.Upstreams),
		o.minutes(),
		o.decisions(),
		o.top(),
		o.conversion(),
		o.audit(),
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
		requiresCluster(o, o.diff()),
	}
}

// api adds the API to mux.
func (o Options) api(mux chi.Router) {
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "there is no "+r.URL.Path+"; GET "+apiRoot+"/openapi.json tells what there is")
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if mux.Match(chi.NewRouteContext(), method, strings.TrimPrefix(r.URL.Path, apiRoot)) {
				allowed = append(allowed, method)
			}
		}
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
	return urlQueryEndpoint(path, summary, nil, func(r *http.Request) (A, error) { return ask(r.Context()) })
}

// queryEndpoint returns an endpoint that reads something according to its request body.
func queryEndpoint[Q, A any](path, summary string, ask func(ctx context.Context, q Q) (A, error)) endpoint {
	return endpoint{
		method: http.MethodPost, path: path, role: Read, summary: summary,
		request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			var q Q
			if checkQuery(w, r, nil) && read(w, r, &q) {
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
			problem(w, http.StatusConflict, "this weir serves its own file: edit that, or write store: redis and reload: {source: redis} and restart it")
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

// A parameter is a query parameter.
type parameter struct {
	name, summary string
	kind          string // string, integer or date-time
	min, max      int64  // of an integer
	enum          []string
}

func stringParam(name, summary string) parameter {
	return parameter{name: name, summary: summary, kind: "string"}
}

func intParam(name, summary string, most int64) parameter {
	return parameter{name: name, summary: summary, kind: "integer", min: 1, max: most}
}

// checkQuery reports whether the query of r has only these parameters, each at most once and valid. If
// not, it has sent the error response.
func checkQuery(w http.ResponseWriter, r *http.Request, all []parameter) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		problem(w, http.StatusBadRequest, "not a query: "+err.Error())
		return false
	}
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
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
			why = all[i].wrong(values[0])
		}
		if why != "" {
			problem(w, http.StatusBadRequest, why)
			return false
		}
	}
	return true
}

// wrong returns why value is not valid for p. An empty value counts as absent.
func (p parameter) wrong(value string) string {
	if value == "" {
		return ""
	}
	switch p.kind {
	case "integer":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < p.min || n > p.max {
			return fmt.Sprintf("%s=%s is no number of that; write %d to %d", p.name, value, p.min, p.max)
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return fmt.Sprintf("%s=%s is no time; write for example 2026-01-31T09:30:00Z", p.name, value)
		}
	}
	if p.enum != nil && !slices.Contains(p.enum, value) {
		return fmt.Sprintf("%s=%s is none; write one of %s", p.name, value, strings.Join(p.enum, ", "))
	}
	return ""
}

// intValue returns the value of a parameter that has been checked; 0 if it is absent.
func intValue(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name))
	return n
}
