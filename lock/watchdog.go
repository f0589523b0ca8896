package lock

import (
	"context"
	"time"
)

// renew is what the watchdog does: every third of the lease it makes Redis keep
// the lock for another lease. An answer that we do not hold it ends the session
// at once. Without an answer it tries again after a thirtieth of the lease, until
// the deadline ends the session.
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

// scheduleRenewal arms the watchdog for a time after the last call was sent.
func (s *session) scheduleRenewal(sent time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCauseLocked() == nil {
		s.renewTimer.Reset(max(time.Until(sent.Add(pause)), time.Millisecond))
	}
}

// markLost ends the session because Redis says that the owner does not hold it, or not
// all of it: what is left of several things is given back.
func (s *session) markLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
}
