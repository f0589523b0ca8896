package admin

import (
	"context"
	"io"
	"net/http"
	"reflect"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

// A SimulateQuery is an access log to replay with the current configuration, and optionally with
// another one.
type SimulateQuery struct {
	Log    io.Reader // may be compressed by gzip; nil means the access log of the node
	Other  string    // YAML of another configuration; empty for none
	Host   string    // host of requests whose log has none
	Fields []string  // names of JSON fields: WHAT=NAME
	Top    int       // number of most refused keys of each limit; 10 if 0
}

// A Simulation is the result of replaying an access log.
type Simulation struct {
	Node      string `json:"node"`
	Lines     int64  `json:"lines"`
	Requests  int64  `json:"requests"`
	Others    int64  `json:"others"`       // lines that are not requests
	Malformed int64  `json:"malformed"`    // lines that cannot be parsed
	Late      int64  `json:"late"`         // requests evaluated later than they arrived
	Untimed   int64  `json:"untimed"`      // requests without a duration in the log
	Hostless  int64  `json:"hostless"`     // requests without a host in the log
	TooMany   int64  `json:"answered_429"` // requests with status 429 in the log
	TookMS    int64  `json:"took_ms"`
	// Generation is the current configuration and Result its result; Against is the result of the
	// other one, if there is one.
	Generation int64              `json:"generation"`
	Result     proxy.ReplayTally  `json:"result"`
	Against    *proxy.ReplayTally `json:"against,omitempty"`
	// Differences compares the routes and limits of both.
	Differences []view.SimulatedDifference `json:"differences,omitempty"`
	Notes       []string                   `json:"notes"` // limitations of the result, and what to log to avoid them
}

// simulate returns the endpoint that replays an access log. It changes nothing, so the role read
// suffices.
func (o Options) simulate() endpoint {
	return endpoint{
		method: http.MethodPost, path: "/simulate", role: Read, form: true, request: reflect.TypeFor[SimulateForm](), response: reflect.TypeFor[Simulation](),
		summary: "What this node's configuration, and another one beside it, would have done with the requests of an access log; it takes nothing. One is replayed at a time.",
		handle: func(w http.ResponseWriter, r *http.Request) {
			if checkQuery(w, r, nil) {
				respond(w, http.StatusServiceUnavailable, func() (Simulation, error) { return o.replay(w, r) })
			}
		},
	}
}

func (o Options) replay(w http.ResponseWriter, r *http.Request) (Simulation, error) {
	u, err := ReadUpload(w, r)
	if err != nil {
		u.Close()
		return Simulation{}, err
	}
	defer u.Close()
	return o.Replay(r.Context(), u)
}

// Replay replays an uploaded log. more are names of further parts of the form besides those of
// SimulateForm.
func (o Options) Replay(ctx context.Context, u *Upload, more ...string) (Simulation, error) {
	q, err := u.Query(more...)
	if err != nil {
		return Simulation{}, err
	}
	s, err := o.Simulate(ctx, q)
	if err == nil {
		err = u.checkEnd()
	}
	return s, err
}
