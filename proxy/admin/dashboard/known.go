package dashboard

import (
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// A known is a value that was asked for, or the last known one if it could not be had. Unknown is not
// zero: templates show – for it.
type known[T any] struct {
	Value T
	// At is when the value was had; zero if it never was.
	At time.Time
	// Old reports that it could not be had now.
	Old bool
}

// Any reports whether there is a value.
func (k known[T]) Any() bool { return !k.At.IsZero() }

// Class returns the CSS class of what shows the value.
func (k known[T]) Class() string {
	if k.Old {
		return "old"
	}
	return ""
}

// A remembered keeps the last known value of something that is asked for again and again.
type remembered[T any] struct {
	mu   sync.Mutex // guards what follows
	last known[T]
}

// update returns the value, or the last known one if err is not nil.
func (r *remembered[T]) update(value T, err error, now time.Time) known[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last = known[T]{Value: value, At: now}
		return r.last
	}
	old := r.last
	old.Old = true
	return old
}

// memories are the last known numbers of all nodes, which this node cannot know while the shared store
// is unreachable.
type memories struct {
	overview [4]remembered[totals] // by index into spans
	series   [4]remembered[series]
	minutes  remembered[admin.Statistics]
	nodes    remembered[admin.Nodes]
	leader   remembered[admin.Leadership]
}
