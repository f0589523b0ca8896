package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
)

// mostMinutes is a day, for which statistics are kept; someMinutes are told when
// nobody says how many.
const (
	mostMinutes = 24 * 60
	someMinutes = 60
)

// ask serves what any node tells of the cluster. Nothing is changed by asking, but
// names and addresses of nodes are not for everybody: it wants the token.
func (o Options) ask(mux chi.Router) {
	mux.With(o.bearer).Get("/api/v1/leader", told(o.Leader))
	mux.With(o.bearer).Get("/api/v1/nodes", told(o.Nodes))
	mux.With(o.bearer).Get("/api/v1/statistics", o.statistics)
}

// told answers with what tell tells, or 503 when it cannot.
func told(tell func(ctx context.Context) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := tell(r.Context())
		if err != nil {
			problem(w, http.StatusServiceUnavailable, err.Error(), nil)
			return
		}
		reply(w, http.StatusOK, "application/json", v)
	}
}

// statistics tells what happened in the last minutes.
func (o Options) statistics(w http.ResponseWriter, r *http.Request) {
	n := someMinutes
	if text := r.URL.Query().Get("minutes"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostMinutes {
			problem(w, http.StatusBadRequest, fmt.Sprintf("minutes=%s is no number of minutes; write 1 to %d", text, mostMinutes), nil)
			return
		}
	}
	told(func(ctx context.Context) (any, error) { return o.Statistics(ctx, n) })(w, r)
}
