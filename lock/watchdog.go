package lock

import (
	"context"
	"time"
)

// renew is called by the watchdog: every third of the lease it renews the lease in Redis.
// If the reply says that the lock is not held, the session ends at once. Without a reply it
// tries again after a thirtieth of the lease, until the deadline ends the session.
func (s *session) renew() {
	if !s.locker.begin() {
		return
	}
	defer s.locker.end()
	ctx, cancel := context.WithTimeout(s.locker.life, min(s.locker.call, s.claim.lease/3))
	defer cancel()
	if s.take(ctx) != nil {
		s.rearm(time.Now(), s.claim.lease/30)
		return
	}
	defer s.give()
	if s.check() != nil {
		return
	}
	sent := time.Now()
	held, err := s.lock.kind.extend(ctx, s.claim)
	switch {
	case err != nil:
		s.rearm(sent, s.claim.lease/30)
	case held:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.checkLocked() == nil {
			s.prolongLocked(sent, s.claim.lease)
			s.renewal.Reset(time.Until(sent.Add(s.claim.lease / 3)))
		}
	default:
		s.lose()
	}
}

// rearm sets the timer of the watchdog relative to the last call.
func (s *session) rearm(sent time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checkLocked() == nil {
		s.renewal.Reset(max(time.Until(sent.Add(pause)), time.Millisecond))
	}
}

// lose ends the session because the owner does not hold the lock, or not all of its parts:
// the rest is released.
func (s *session) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
}
