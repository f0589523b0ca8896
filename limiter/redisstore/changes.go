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

// changePrefix is the prefix of messages about changes. A process of an older version
// does not know it and removes all cached refusals, which costs Redis some calls and does
// not affect decisions.
const changePrefix = "change:"

// changes sends and receives the actions of operators between the processes that share a
// Redis.
type changes struct {
	processID string // identifies the messages of this process
	reports   *reports
	onChange  atomic.Pointer[func(limiter.Change)] // nil if not set
}

// A changeMessage is the JSON form of a change.
type changeMessage struct {
	From string `json:"from"`
	Key  string `json:"key"`
	limiter.Change
}

func newChanges(r *reports) *changes { return &changes{processID: uuid.NewString(), reports: r} }

// Announce publishes a change that was made in Redis to all other processes that are
// subscribed now. It makes no change itself. Errors wrap limiter.ErrUnavailable.
func (s *Store) Announce(ctx context.Context, c limiter.Change) error {
	text, err := json.Marshal(changeMessage{s.changes.processID, c.Key.String(), c})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Publish(ctx, invalidationChannel(s.names.prefix), changePrefix+string(text)).Err(); err != nil {
		return fmt.Errorf("announce change: %w: %w", limiter.ErrUnavailable, err)
	}
	return nil
}

// OnChange sets the function that is called with each change that another process
// announces, one after another. f must not block, because the same goroutine receives the
// refunds of other processes. A later call replaces f. A Store without refusals receives
// no changes.
func (s *Store) OnChange(f func(limiter.Change)) { s.changes.onChange.Store(&f) }

// handle handles a message about a change, and returns false for other messages. After a
// reset, pending reports about the key are removed like its other state.
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

// removeWindows removes the pending reports about the windows of claims, except those
// that are being sent.
func (r *reports) removeWindows(claims []limiter.Claim) {
	if r.windows.Load() == 0 {
		return
	}
	for _, c := range claims {
		r.removeWindow(windowIDOf(&c))
	}
}

// removeNamed is like removeWindows for limits of which only the names are known.
func (r *reports) removeNamed(limits []string, k limiter.Key) {
	if r.windows.Load() == 0 {
		return
	}
	for _, name := range limits {
		for a := range limiter.NumAlgorithms {
			r.removeWindow(windowID{name, a, limiter.Overall, slot{key: k}})
			r.removeWindow(windowID{name, a, limiter.PerClient, slot{key: k}})
		}
	}
}

// removeWindow removes the pending report about a window.
func (r *reports) removeWindow(id windowID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.byWindow[id]
	if found == nil {
		return
	}
	if found.grants = found.grants[:found.sending]; found.sending == 0 {
		r.deleteLocked(found)
	}
}
