package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// call runs send while the lock is held and no other call of the session is in progress.
// verb is for errors.
func (s *session) call(ctx context.Context, h *Hold, verb string, send func(context.Context) (bool, error)) error {
	if !s.locker.beginCall() {
		return ErrClosed
	}
	defer s.locker.endCall()
	if err := s.lockSend(ctx); err != nil {
		return fmt.Errorf("%s lock %s: %w", verb, s.lock.name, err)
	}
	defer s.unlockSend()
	if err := h.checkHeld(); err != nil {
		return err
	}
	ctx, cancel := s.locker.callContext(ctx)
	defer cancel()
	held, err := send(ctx)
	if err != nil {
		return fmt.Errorf("%s lock %s: %w", verb, s.lock.name, err)
	}
	if !held {
		s.markLost()
	}
	return h.checkHeld()
}

// checkHeld returns why h cannot be used any more; nil if it can.
func (h *Hold) checkHeld() error {
	if err := h.endCause(); !errors.Is(err, ErrReleased) {
		return err
	}
	return ErrNotHeld
}

// reenter adds a hold to the session of h. If the outcome of the call is unknown, nothing
// remains to be undone, because the next unlock sets the count.
func (s *session) reenter(ctx context.Context, h *Hold, lease time.Duration) (*Hold, error) {
	if !s.lock.traits.reentrant {
		return nil, fmt.Errorf("lock %s: %w", s.lock.name, ErrNotReentrant)
	}
	var next *Hold
	err := s.call(ctx, h, "reenter", func(call context.Context) (bool, error) {
		s.mu.Lock()
		c := s.params
		c.count, c.lease = len(s.holds)+1, lease
		s.mu.Unlock()
		sent := time.Now()
		o, err := s.lock.kind.attempt(call, c)
		if err != nil || !o.held {
			return false, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.endCauseLocked() == nil {
			s.extendDeadlineLocked(sent, lease)
			next = s.addLocked(ctx)
		}
		return true, nil
	})
	if err == nil && next == nil {
		err = ErrLost
	}
	return next, err
}

// reenterAny is reenter for WithOwner: it uses any hold of the session.
func (s *session) reenterAny(ctx context.Context, r lockOptions) (*Hold, error) {
	s.mu.Lock()
	var h *Hold
	for h = range s.holds {
		break
	}
	s.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("lock %s: %w", s.lock.name, ErrNotHeld)
	}
	lease := s.params.lease
	if r.hasLease {
		lease = r.lease
	}
	return s.reenter(ctx, h, lease)
}

// unlock ends h. If it is the last hold, the session ends before the call to Redis.
func (s *session) unlock(ctx context.Context, h *Hold) error {
	s.mu.Lock()
	if cause := s.endCauseLocked(); cause != nil {
		s.mu.Unlock()
		return cause
	}
	if !s.locker.beginCall() {
		s.mu.Unlock()
		return ErrClosed // Close releases it
	}
	defer s.locker.endCall()
	h.endLocked(ErrReleased)
	if len(s.holds) == 0 {
		s.endLocked(ErrReleased)
	}
	s.mu.Unlock()
	if err := s.sendCount(ctx); err != nil {
		return fmt.Errorf("unlock %s: %w", s.lock.name, err)
	}
	return nil
}

// closeWith ends the session with cause and releases the lock.
func (s *session) closeWith(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.endLocked(cause)
	s.mu.Unlock()
	s.sendCount(context.Background()) // if the call fails, the lease expires
}

// sendCount sets the count in Redis to the number of holds. It holds sendLock, so that
// counts arrive in order and no renewal is in progress when the last one is sent.
func (s *session) sendCount(ctx context.Context) error {
	s.sendLock <- struct{}{} // held by others for one call at most
	defer s.unlockSend()
	if s.released {
		return nil // a concurrent unlock has released everything
	}
	s.mu.Lock()
	c := s.params
	c.count = len(s.holds)
	s.mu.Unlock()

	s.released = c.count == 0
	p, err := s.release(ctx, c)
	if c.count > 0 {
		if errors.Is(err, ErrLost) {
			s.markLost()
		}
		return err
	}
	if err != nil && !errors.Is(err, ErrLost) {
		s.locker.releaseInBackground(c.owner, func() { s.locker.retryRelease(s.lock.kind, c) })
	}
	s.locker.removeSession(s)
	notified := s.otherListeners(p.notified)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveQueueLocked(notified)
	return err
}

// release sends c.count, and sends it again if there was no reply. If the second call
// finds nothing before the deadline, that is not a loss: the first call has released the
// lock.
func (s *session) release(ctx context.Context, c callParams) (releaseResult, error) {
	var p releaseResult
	var err error
	for try := range 2 {
		call, cancel := s.locker.callContext(ctx)
		p, err = s.lock.kind.release(call, c)
		cancel()
		if err == nil && !p.held && (try == 0 || !time.Now().Before(s.currentDeadline())) {
			return p, ErrLost
		}
		if err == nil || replied(err) {
			break
		}
	}
	return p, err
}

// currentDeadline returns the deadline of the session.
func (s *session) currentDeadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}
