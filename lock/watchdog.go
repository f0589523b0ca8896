package lock

import (
	"context"
	"time"
)

// renew is called by the watchdog timer. Every third of the lease it extends the lock for
// another lease. If Redis replies that the lock is not held, the session ends
// immediately. Without a reply it tries again after a thirtieth of the lease, until the
// deadline ends the session.
func (s *session) renew() {
	if !s.locker.beginCall() {
		return
	}
	defer s.locker.endCall()
	ctx, cancel := context.WithTimeout(s.locker.ctx, min(s.locker.callTimeout, s.params.lease/3))
	defer cancel()
	if s.lockSend(ctx) != nil {
		s.scheduleRenewal(time.Now(), s.params.lease/30)
		return
	}
	defer s.unlockSend()
	if s.endCause() != nil {
		return
	}
	sent := time.Now()
	held, err := s.lock.kind.extend(ctx, s.params)
	switch {
	case err != nil:
		s.scheduleRenewal(sent, s.params.lease/30)
	case held:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.endCauseLocked() == nil {
			s.extendDeadlineLocked(sent, s.params.lease)
			s.renewTimer.Reset(time.Until(sent.Add(s.params.lease / 3)))
		}
	default:
		s.markLost()
	}
}

// scheduleRenewal sets the watchdog timer to a pause after the last call was sent.
func (s *session) scheduleRenewal(sent time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCauseLocked() == nil {
		s.renewTimer.Reset(max(time.Until(sent.Add(pause)), time.Millisecond))
	}
}

// markLost ends the session because the owner does not hold the lock any more, or not all
// of it. What is left of several resources is released.
func (s *session) markLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
}
