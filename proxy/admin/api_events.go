package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
)

// events returns the endpoint for the stream of events (server-sent events). The stream ends when
// the node stops or the client disconnects.
func (o Options) events() endpoint {
	e := endpoint{
		method: http.MethodGet, path: "/events", role: Read, stream: true, response: reflect.TypeFor[Event](),
		summary: "What happens on this node, as server-sent events: each second what was counted (statistics), and what changes (reload, key).",
		handle:  o.Stream,
	}
	if o.Events == nil {
		return e.unavailable("this node has no events")
	}
	return e
}

// Stream sends events to an authenticated client. A subscriber that is too slow is disconnected;
// its browser reconnects by itself.
func (o Options) Stream(w http.ResponseWriter, r *http.Request) {
	if !checkQuery(w, r, nil) {
		return
	}
	events, cancel, err := o.Events.subscribe()
	if err != nil {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // makes nginx forward the events without buffering
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	for {
		select {
		case one, open := <-events:
			if !open {
				return
			}
			data, err := json.Marshal(one)
			if err != nil {
				return // a programming error in Event
			}
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", one.Type, data); err != nil || flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
