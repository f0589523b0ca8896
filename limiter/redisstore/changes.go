package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/weir-proxy/weir/limiter"
)

// changePrefix begins the messages that tell of changes. A process of an older version
// takes them for something that it does not know, and forgets all denials: that costs
// Redis some calls, and no decision.
const changePrefix = "change:"

// changes are what operators do, on its way between the processes that share a Redis.
type changes struct {
	processID string // tells the messages of this process from those of others
	reports   *reports
	onChange  atomic.Pointer[func(limiter.Change)] // nil: nobody listens
}

// A changeMessage is a change as it travels.
type changeMessage struct {
	From string `json:"from"`
	Key  string `json:"key"`
	limiter.Change
}

func newChanges(r *reports) *changes { return &changes{processID: uuid.NewString(), reports: r} }

// Announce tells all other processes of a change that was made in Redis: those that
// listen now, once. It makes no change itself. An error wraps limiter.ErrUnavailable.
func (s *Store) Announce(ctx context.Context, c limiter.Change) error {
	text, err := json.Marshal(changeMessage{s.changes.processID, c.Key.String(), c})
	if err != nil {
		panic(err) // texts and numbers can be written
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Publish(ctx, invalidationChannel(s.names.prefix), changePrefix+string(text)).Err(); err != nil {
		return fmt.Errorf("announce a change: %w: %w", limiter.ErrUnavailable, err)
	}
	return nil
}

// OnChange calls f with each change that another process announces from now on, one
// after another; f must not wait for long, because refunds of others are heard of by
// the same goroutine. There is one f: a later one takes the place of the one before. A
// Store without denials does not listen.
func (s *Store) OnChange(f func(limiter.Change)) { s.changes.onChange.Store(&f) }

// handle reports whether a message tells of a change. What was granted in place of Redis
// before a reset, and is not reported yet, is forgotten with all else.
func (c *changes) handle(message string) bool {
	text, found := strings.CutPrefix(message, changePrefix)
	var m changeMessage
	if !found || json.Unmarshal([]byte(text), &m) != nil || !readKey(m.Key, &m.Change.Key) {
		return false
	}
	if m.From == c.processID {
		return true
	}
	if m.Action == limiter.ActionReset {
		c.reports.removeNamed(m.Limits, m.Change.Key)
	}
	if f := c.onChange.Load(); f != nil {
		(*f)(m.Change)
	}
	return true
}

// removeWindows forgets what is to be told of the windows of claims, but for what is on its
// way already.
func (r *reports) removeWindows(claims []limiter.Claim) {
	if r.windows.Load() == 0 {
		return
	}
	for _, c := range claims {
		r.removeWindow(windowIDOf(c))
	}
}

// removeNamed is forget for limits of which only the names are known.
func (r *reports) removeNamed(limits []string, k limiter.Key) {
	if r.windows.Load() == 0 {
		return
	}
	for _, name := range limits {
		for a := limiter.TokenBucket; a <= limiter.SlidingLog; a++ {
			r.removeWindow(windowID{name, a, limiter.Overall, slot{key: k}})
			r.removeWindow(windowID{name, a, limiter.PerClient, slot{key: k}})
		}
	}
}

func (r *reports) removeWindow(id windowID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.byWindow[id]
	if found == nil {
		return
	}
	if found.grants = found.grants[:found.sending]; found.sending == 0 {
		delete(r.byWindow, id)
		r.windows.Add(-1)
	}
}
