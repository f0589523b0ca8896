package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/proxy/config"
)

// maxRequest is how long a request with a bundle may be, in bytes: JSON escapes
// what is in the files.
const maxRequest = 2*config.MaxBundle + 1<<20

// A Cluster moves all nodes from one configuration to another. What its methods
// return is sent as JSON. An error that is a Fault says its status itself.
type Cluster interface {
	Push(ctx context.Context, p Push) (any, error)
	Rollback(ctx context.Context, r Rollback) (any, error)
	History(ctx context.Context) (any, error)
	// Diff tells what a generation of the history changed.
	Diff(ctx context.Context, generation int64) (any, error)
}

// A Push is a configuration for all nodes.
type Push struct {
	Bundle config.Bundle `json:"bundle"`
	Author string        `json:"author"`
	DryRun bool          `json:"dry_run"` // ask all nodes, change nothing
}

// A Rollback is the way back to a generation.
type Rollback struct {
	Generation int64  `json:"generation"` // 0: the one before
	Author     string `json:"author"`
}

// A Fault is an error with the status and the facts that it is told with.
type Fault struct {
	Status int
	Detail string
	Facts  map[string]any
}

// Error is what it says to people.
func (f *Fault) Error() string { return f.Detail }

// pushes adds what moves all nodes.
func (o Options) pushes(mux chi.Router) {
	planning := make(chan struct{}, 1)
	mux.Post("/api/v1/plan", func(w http.ResponseWriter, r *http.Request) {
		select { // before it is read: a plan costs as much as a reload
		case planning <- struct{}{}:
			defer func() { <-planning }()
		default:
			problem(w, http.StatusTooManyRequests, "another plan is being made here; ask again when it is done", nil)
			return
		}
		var p Push
		if read(w, r, &p) {
			answer(w, func() (any, error) { return o.Plan(r.Context(), p.Bundle) })
		}
	})
	mux.Post("/api/v1/push", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		var p Push
		if read(w, r, &p) {
			answer(w, func() (any, error) { return o.Cluster.Push(r.Context(), p) })
		}
	}))
	mux.Post("/api/v1/rollback", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		var b Rollback
		if read(w, r, &b) {
			answer(w, func() (any, error) { return o.Cluster.Rollback(r.Context(), b) })
		}
	}))
	mux.Get("/api/v1/history", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		answer(w, func() (any, error) { return o.Cluster.History(r.Context()) })
	}))
	mux.Get("/api/v1/history/{generation}", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(chi.URLParam(r, "generation"), 10, 64)
		if err != nil {
			problem(w, http.StatusNotFound, "a generation is a number; GET /api/v1/history lists them", nil)
			return
		}
		answer(w, func() (any, error) { return o.Cluster.Diff(r.Context(), n) })
	}))
}

// clustered says what to do where nothing can be pushed.
func (o Options) clustered(next http.HandlerFunc) http.HandlerFunc {
	if o.Cluster != nil {
		return next
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusConflict, "this weir serves its own file: edit that, or write store: redis and reload: {source: redis} and restart it", nil)
	}
}

// read decodes what a request says; it has answered when that cannot be
// understood.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem(w, http.StatusRequestEntityTooLarge, "too long for a configuration", nil)
	case err != nil:
		problem(w, http.StatusBadRequest, "not understood: "+err.Error(), nil)
	}
	return err == nil
}

// answer sends what ask returns, or why it cannot.
func answer(w http.ResponseWriter, ask func() (any, error)) {
	v, err := ask()
	var problems config.Problems
	var fault *Fault
	switch {
	case err == nil:
		reply(w, http.StatusOK, "application/json", v)
	case errors.As(err, &problems):
		refused(w, problems)
	case errors.Is(err, config.ErrBundle):
		problem(w, http.StatusUnprocessableEntity, err.Error(), nil)
	case errors.As(err, &fault):
		problem(w, fault.Status, fault.Detail, fault.Facts)
	default:
		problem(w, http.StatusServiceUnavailable, err.Error(), nil)
	}
}
