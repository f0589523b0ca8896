package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

const (
	// maxSubscribers is the maximum number of subscribers.
	maxSubscribers = 64
	// subscriberBuffer is the number of events after which a slow subscriber is disconnected.
	subscriberBuffer = 64
	// tickInterval is the interval of statistics events.
	tickInterval = time.Second
)

// The types of events.
const (
	EventStatistics = "statistics"
	EventReload     = "reload" // another generation is served, or one was refused
	EventKey        = "key"    // an operator changed a key
)

// An Event is an event on this node.
type Event struct {
	Type       string    `json:"type"` // statistics, reload or key
	At         time.Time `json:"at"`
	Generation int64     `json:"generation,omitempty"` // of a reload: the current generation
	Hash       string    `json:"hash,omitempty"`
	// Action, Who, Masked and KeyHash describe an operator's change of a key.
	Action  string `json:"action,omitempty"`
	Who     string `json:"who,omitempty"`
	Masked  string `json:"masked,omitempty"`
	KeyHash string `json:"key_hash,omitempty"`
	Error   string `json:"error,omitempty"` // set if the action failed
	// Counts are the counts on this node since the previous event of this type.
	Counts []SeriesCount `json:"counts,omitempty"`
}

// A SeriesCount is the count of a series.
type SeriesCount struct {
	proxy.Series
	N int64 `json:"n"`
}

// Errors of Subscribe.
var (
	errTooManySubscribers = errors.New("too many event subscribers on this node; close one, or use another node")
	errEnding             = errors.New("this weir is shutting down")
)

// Events publishes events to subscribers. It is safe for concurrent use.
type Events struct {
	counts func() map[proxy.Series]int64
	ticker *time.Ticker

	mu          sync.Mutex // guards what follows; never held over I/O
	subscribers map[chan Event]struct{}
	last        map[proxy.Series]int64 // the counts at the last tick, or when the first of the subscribers came
	ended       bool
}

// NewEvents returns an Events that reports these counts, which must only increase.
func NewEvents(counts func() map[proxy.Series]int64) *Events {
	return &Events{counts: counts, ticker: time.NewTicker(tickInterval), subscribers: map[chan Event]struct{}{}}
}

// Run publishes statistics every second while there are subscribers, until ctx is done. It then
// ends all subscriptions and accepts no more.
func (e *Events) Run(ctx context.Context) {
	defer e.end()
	for {
		select {
		case <-e.ticker.C:
			e.tick()
		case <-ctx.Done():
			return
		}
	}
}

// tick publishes what was counted since the last time, if there are subscribers.
func (e *Events) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.subscribers) == 0 {
		return
	}
	was := e.last
	e.last = e.counts()
	e.publishLocked(Event{Type: EventStatistics, Counts: countsSince(was, e.last)})
}

// countsSince returns the differences between two counts.
func countsSince(was, is map[proxy.Series]int64) []SeriesCount {
	all := []SeriesCount{}
	for s, n := range is {
		if n > was[s] {
			all = append(all, SeriesCount{s, n - was[s]})
		}
	}
	slices.SortFunc(all, func(a, b SeriesCount) int {
		return cmp.Or(strings.Compare(a.Route, b.Route), strings.Compare(a.Limit, b.Limit), strings.Compare(a.Result, b.Result))
	})
	return all
}

// Publish sends an event to all subscribers. It does not block: a subscriber whose buffer is full
// is disconnected.
func (e *Events) Publish(one Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publishLocked(one)
}

func (e *Events) publishLocked(one Event) {
	one.At = time.Now().UTC()
	for s := range e.subscribers {
		select {
		case s <- one:
		default:
			delete(e.subscribers, s)
			close(s)
		}
	}
}

// subscribe returns a channel of events, and a function that ends the subscription. The channel is
// closed when Events ends, or if events are not received fast enough.
func (e *Events) subscribe() (events <-chan Event, cancel func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return nil, nil, errEnding
	case len(e.subscribers) >= maxSubscribers:
		return nil, nil, errTooManySubscribers
	case len(e.subscribers) == 0:
		e.last = e.counts()
		e.ticker.Reset(tickInterval)
	}
	s := make(chan Event, subscriberBuffer)
	e.subscribers[s] = struct{}{}
	return s, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, there := e.subscribers[s]; there {
			delete(e.subscribers, s)
			close(s)
		}
	}, nil
}

// end ends all subscriptions.
func (e *Events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ticker.Stop()
	e.ended = true
	for s := range e.subscribers {
		close(s)
	}
	clear(e.subscribers)
}

// events returns the endpoint for the stream of events (server-sent events). The stream ends when
// the node stops or the client disconnects.
func (o Options) events() endpoint {
	return endpoint{
		method: http.MethodGet, path: "/events", role: Read, stream: true, response: reflect.TypeFor[Event](),
		summary: "What happens on this node, as server-sent events: each second what was counted (statistics), and what changes (reload, key).",
		handle:  o.Stream,
	}
}

// Stream sends events to an authenticated client. A subscriber that is too slow is disconnected;
// its browser reconnects by itself.
func (o Options) Stream(w http.ResponseWriter, r *http.Request) {
	if !readQuery(w, r, nil) {
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
	defer context.AfterFunc(r.Context(), cancel)()
	for one := range events {
		data, _ := json.Marshal(one) // it has only texts and numbers
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", one.Type, data); err != nil || flush() != nil {
			return
		}
	}
}
