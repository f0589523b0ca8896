package upstream

import (
	"context"
	"errors"
	"time"
)

// errIdle reports that a target sent nothing for too long in the middle of a
// response.
var errIdle = errors.New("no byte came in time")

// An idleTimer ends a request whose target falls silent in the middle of its
// response. It runs only while somebody waits for a byte.
type idleTimer struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// newIdleTimer makes a stall that calls cancel; it does not run yet.
func newIdleTimer(after time.Duration, cancel context.CancelCauseFunc) *idleTimer {
	s := &idleTimer{after: after, cancel: cancel}
	s.timer = time.AfterFunc(after, func() { cancel(errIdle) })
	s.timer.Stop()
	return s
}

// begin and end enclose a wait. A nil stall never ends anything.
func (s *idleTimer) begin() {
	if s != nil {
		s.timer.Reset(s.after)
	}
}

func (s *idleTimer) end() {
	if s != nil {
		s.timer.Stop()
	}
}
