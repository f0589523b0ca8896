package admin

import (
	"context"
	"net/http"
	"reflect"
)

// simulate returns the endpoint that replays an access log. It changes nothing, so the role read
// suffices.
func (o Options) simulate() endpoint {
	e := endpoint{
		method: http.MethodPost, path: "/simulate", role: Read, form: true, request: reflect.TypeFor[SimulateForm](), response: reflect.TypeFor[Simulation](),
		summary: "What this node's configuration, and another one beside it, would have done with the requests of an access log; it takes nothing. One is replayed at a time.",
		handle: func(w http.ResponseWriter, r *http.Request) {
			if checkQuery(w, r, nil) {
				respond(w, http.StatusServiceUnavailable, func() (Simulation, error) { return o.replay(w, r) })
			}
		},
	}
	if o.Simulate == nil {
		return e.unavailable("this node does not replay logs")
	}
	return e
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
