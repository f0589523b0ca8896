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

// A Cluster moves all nodes from one configuration to another. An error that is a
// Problem says its status itself.
type Cluster interface {
	Push(ctx context.Context, p Push) (Pushed, error)
	Rollback(ctx context.Context, r Rollback) (Pushed, error)
	History(ctx context.Context) (History, error)
	// Diff tells what a generation of the history changed.
	Diff(ctx context.Context, generation int64) (Diff, error)
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

// pushes adds what moves all nodes.
func (o Options) pushes(mux chi.Router) {
	planning := make(chan struct{}, 1)
	mux.Post("/api/v1/plan", func(w http.ResponseWriter, r *http.Request) {
		select { // before it is read: a plan costs as much as a reload
		case planning <- struct{}{}:
			defer func() { <-planning }()
		default:
			problem(w, http.StatusTooManyRequests, "another plan is being made here; ask again when it is done")
			return
		}
		var p Push
		if read(w, r, &p) {
			answer(w, http.StatusServiceUnavailable, func() (Plan, error) { return o.Plan(r.Context(), p.Bundle) })
		}
	})
	mux.Post("/api/v1/push", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		var p Push
		if read(w, r, &p) {
			answer(w, http.StatusServiceUnavailable, func() (Pushed, error) { return o.Cluster.Push(r.Context(), p) })
		}
	}))
	mux.Post("/api/v1/rollback", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		var b Rollback
		if read(w, r, &b) {
			answer(w, http.StatusServiceUnavailable, func() (Pushed, error) { return o.Cluster.Rollback(r.Context(), b) })
		}
	}))
	mux.Get("/api/v1/history", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusServiceUnavailable, func() (History, error) { return o.Cluster.History(r.Context()) })
	}))
	mux.Get("/api/v1/history/{generation}", o.clustered(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(chi.URLParam(r, "generation"), 10, 64)
		if err != nil {
			problem(w, http.StatusNotFound, "a generation is a number; GET /api/v1/history lists them")
			return
		}
		answer(w, http.StatusServiceUnavailable, func() (Diff, error) { return o.Cluster.Diff(r.Context(), n) })
	}))
}

// clustered says what to do where nothing can be pushed.
func (o Options) clustered(next http.HandlerFunc) http.HandlerFunc {
	if o.Cluster != nil {
		return next
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusConflict, "this weir serves its own file: edit that, or write store: redis and reload: {source: redis} and restart it")
	}
}

// read decodes what a request says; it has answered when that cannot be
// understood.
func read[T any](w http.ResponseWriter, r *http.Request, v *T) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem(w, http.StatusRequestEntityTooLarge, "too long for a configuration")
	case err != nil:
		problem(w, http.StatusBadRequest, "not understood: "+err.Error())
	}
	return err == nil
}
