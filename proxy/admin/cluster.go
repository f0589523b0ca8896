package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
)

// mostMinutes is a day, for which statistics are kept; someMinutes are sent when
// nobody says how many.
const (
	mostMinutes = 24 * 60
	someMinutes = 60
)

// cluster serves what any node tells of the cluster. Nothing is changed by asking, but
// names and addresses of nodes are not for everybody: it wants the token.
func (o Options) cluster(mux chi.Router) {
	mux.With(o.bearer).Get("/api/v1/leader", report(o.Leader))
	mux.With(o.bearer).Get("/api/v1/nodes", report(o.Nodes))
	mux.With(o.bearer).Get("/api/v1/statistics", o.statistics)
}

// report answers with what ask returns, or 503 when it cannot.
func report[T any](ask func(ctx context.Context) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusServiceUnavailable, func() (T, error) { return ask(r.Context()) })
	}
}

// statistics tells what happened in the last minutes.
func (o Options) statistics(w http.ResponseWriter, r *http.Request) {
	n := someMinutes
	if text := r.URL.Query().Get("minutes"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostMinutes {
			problem(w, http.StatusBadRequest, fmt.Sprintf("minutes=%s is no number of minutes; write 1 to %d", text, mostMinutes))
			return
		}
	}
	report(func(ctx context.Context) (Statistics, error) { return o.Statistics(ctx, n) })(w, r)
}
