package admin

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy"
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
	asks         reflect.Type // request type: JSON, or a form; nil without a body
	form         bool         // the request is sent as multipart/form-data
	answers      reflect.Type // response type: JSON, or the events of a stream
	stream       bool
	handle       http.HandlerFunc
}

// endpoints returns all endpoints of the API.
func (o Options) endpoints() []endpoint {
	return []endpoint{
		look("/config", "The configuration of this node, with all defaults; secrets are masked.", o.Config),
		look("/routes", "The routes of this node.", o.Routes),
		look("/limits", "The limits of all routes of this node.", o.Limits),
		look("/nodes", "The live nodes and their configurations.", o.Nodes),
		look("/leader", "The leader, and the runs of its tasks.", o.Leader),
		o.upstreams(),
		o.minutes(),
		o.decisions(),
		o.top(),
		o.audit(),
		o.events(),
		about("/explain", "Explain what would happen to a request, and why. Takes no permits.", o.Explain),
		o.simulate(),
		about("/plan", "What would change if this configuration were served, and which keys would be refused now.", o.plan).bounded(maxRequest).alone("another plan is in progress on this node; try again later"),
		about("/keys/inspect", "The state of a key under all limits that count by it. It is a POST because a value in a URL would appear in the logs of intermediaries.", o.Standing),
		change("/keys/reset", "Reset the counts and bans of a key on all nodes.", o.change(proxy.KeyReset)),
		change("/keys/grant", "Grant permits to a key, up to its limit, on all nodes.", o.grant),
		change("/keys/ban", "Ban a key for some time on all nodes.", o.ban),
		change("/keys/unban", "End the bans of a key on all nodes; its counts stay.", o.change(proxy.KeyUnban)),
		o.reloading(),
		clustered(o, change("/push", "Make all nodes serve a configuration, or none. With dry_run it is only checked.", o.push)).bounded(maxRequest),
		clustered(o, change("/rollback", "Make all nodes serve an earlier generation.", o.rollback)),
		clustered(o, look("/history", "The pushes, newest first.", o.history)),
		clustered(o, o.diff()),
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
		mux.With(o.allow(e.role)).Method(e.method, e.path, e.handle)
	}
	document := sync.OnceValue(func() object { return openAPI(endpoints) }) // 350 KB that are rarely needed
	mux.With(o.allow(Read)).Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "application/json", document())
	})
}

// look returns an endpoint that reads something and has no parameters.
func look[A any](path, summary string, ask func(ctx context.Context) (A, error)) endpoint {
	return endpoint{
		method: http.MethodGet, path: path, role: Read, summary: summary, answers: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			if queried(w, r, nil) {
				answer(w, http.StatusServiceUnavailable, func() (A, error) { return ask(r.Context()) })
			}
		},
	}
}

// about returns an endpoint that reads something according to its request body.
func about[Q, A any](path, summary string, ask func(ctx context.Context, q Q) (A, error)) endpoint {
	return endpoint{
		method: http.MethodPost, path: path, role: Read, summary: summary,
		asks: reflect.TypeFor[Q](), answers: reflect.TypeFor[A](),
		handle: func(w http.ResponseWriter, r *http.Request) {
			var q Q
			if queried(w, r, nil) && read(w, r, &q) {
				answer(w, http.StatusServiceUnavailable, func() (A, error) { return ask(r.Context(), q) })
			}
		},
	}
}

// change returns an endpoint that changes something.
func change[Q, A any](path, summary string, do func(ctx context.Context, q Q) (A, error)) endpoint {
	e := about(path, summary, do)
	e.role = Write
	return e
}

// bounded returns e with another limit for the request body than maxQuestion.
func (e endpoint) bounded(most int64) endpoint {
	next := e.handle
	e.handle = func(w http.ResponseWriter, r *http.Request) { next(w, bounded(r, most)) }
	return e
}

// missing returns e as an endpoint that responds with 404 and why.
func (e endpoint) missing(why string) endpoint {
	e.handle = func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusNotFound, why) }
	return e
}

// clustered returns e, or an endpoint that says how to enable pushes.
func clustered(o Options, e endpoint) endpoint {
	if o.Cluster == nil {
		e.handle = func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusConflict, "this weir serves its own file: edit that, or write store: redis and reload: {source: redis} and restart it")
		}
	}
	return e
}
