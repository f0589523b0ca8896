package upstream

import (
	"context"
	"errors"
	"time"
)

// errBodyTimeout reports that a target sent nothing for too long in the middle of a
// response.
var errBodyTimeout = errors.New("no byte came in time")

// An idleTimer ends a request whose target falls silent in the middle of its
// response. It runs only while somebody waits for a byte.
type idleTimer struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// newIdleTimer makes a stall that calls cancel; it does not run yet.
func newIdleTimer(after time.Duration, cancel context.CancelCauseFunc) *idleTimer {
	s := &idleTimer{timeout: after, cancel: cancel}
	s.timer = time.AfterFunc(after, func() { cancel(errBodyTimeout) })
	s.timer.Stop()
	return s
}

// begin and end enclose a wait. A nil stall never ends anything.
func (s *idleTimer) begin() {
	if s != nil {
		s.timer.Reset(s.timeout)
	}
}

func (s *idleTimer) end() {
	if s != nil {
		s.timer.Stop()
	}
}
