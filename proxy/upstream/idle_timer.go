package upstream

import (
	"context"
	"errors"
	"time"
)

// errBodyTimeout reports that a target sent nothing for too long in the middle of a
// response.
var errBodyTimeout = errors.New("timeout between reads of the response body")

// An idleTimer cancels a request whose target sends nothing for too long in the middle
// of its response. It runs only during reads.
type idleTimer struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// newIdleTimer returns a stopped timer that calls cancel.
func newIdleTimer(after time.Duration, cancel context.CancelCauseFunc) *idleTimer {
	s := &idleTimer{timeout: after, cancel: cancel}
	s.timer = time.AfterFunc(after, func() { cancel(errBodyTimeout) })
	s.timer.Stop()
	return s
}

// begin and end are called before and after each read. They do nothing if i is nil.
func (i *idleTimer) begin() {
	if i != nil {
		i.timer.Reset(i.timeout)
	}
}

func (i *idleTimer) end() {
	if i != nil {
		i.timer.Stop()
	}
}
