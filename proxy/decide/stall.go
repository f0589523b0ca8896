package decide

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	beatInterval = 50 * time.Millisecond
	// minStall is the time without a beat after which the process is taken to have stood still, and stallPause is how
	// long calls are held back then. The resets of those that were given up come behind them on their connections.
	minStall   = 4 * beatInterval
	stallPause = 2 * beatInterval
)

// A stall notices that the process stood still, for example because it was stopped or its machine was paused. gRPC
// begins a call before it has read what follows: without a pause, calls that were given up meanwhile would be decided.
type stall struct {
	epoch time.Time
	last  atomic.Int64 // the last beat, in ns since epoch
	until atomic.Int64 // when calls are not held back any more
}

// watch beats until ctx is done.
func (s *stall) watch(ctx context.Context) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for s.last.Store(int64(time.Since(s.epoch))); ; s.beat() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat ends the time without a beat.
func (s *stall) beat() {
	now := time.Since(s.epoch)
	if now-time.Duration(s.last.Load()) >= minStall {
		s.until.Store(int64(now + stallPause))
	}
	s.last.Store(int64(now))
}

// wait holds a call back if the process has stood still, until ctx is done.
func (s *stall) wait(ctx context.Context) {
	now := time.Since(s.epoch)
	if now-time.Duration(s.last.Load()) >= minStall {
		s.beat()
	}
	left := time.Duration(s.until.Load()) - now
	if left <= 0 {
		return // as nearly always
	}
	pause := time.NewTimer(left)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}
