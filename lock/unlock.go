package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// call sends a command that requires the lock to be held, in order with all others of the
// session.
func (s *session) call(ctx context.Context, h *Hold, verb string, send func(context.Context) (bool, error)) error {
	if !s.locker.begin() {
		return ErrClosed
	}
	defer s.locker.end()
	if err := s.take(ctx); err != nil {
		return fmt.Errorf("%s lock %s: %w", verb, s.lock.name, err)
	}
	defer s.give()
	if err := h.check(); err != nil {
		return err
	}
	ctx, cancel := s.locker.bounded(ctx)
	defer cancel()
	held, err := send(ctx)
	if err != nil {
		return fmt.Errorf("%s lock %s: %w", verb, s.lock.name, err)
	}
	if !held {
		s.lose()
	}
	return h.check()
}

// check returns the reason why h cannot be used any more, or nil.
func (h *Hold) check() error {
	if err := h.ended(); !errors.Is(err, ErrReleased) {
		return err
	}
	return ErrNotHeld
}

// reenter adds a hold to the session of h. A call with unknown outcome has no lasting
// effect: the next unlock writes the current count.
func (s *session) reenter(ctx context.Context, h *Hold, lease time.Duration) (*Hold, error) {
	if !s.lock.traits.enters {
		return nil, fmt.Errorf("lock %s: %w", s.lock.name, ErrReentrant)
	}
	var next *Hold
	err := s.call(ctx, h, "reenter", func(call context.Context) (bool, error) {
		s.mu.Lock()
		c := s.claim
		c.count, c.lease = len(s.holds)+1, lease
		s.mu.Unlock()
		sent := time.Now()
		o, err := s.lock.kind.attempt(call, c)
		if err != nil || !o.held {
			return false, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.checkLocked() == nil {
			s.prolongLocked(sent, lease)
			next = s.addLocked(ctx)
		}
		return true, nil
	})
	if err == nil && next == nil {
		err = ErrLost
	}
	return next, err
}

// enter is reenter for WithOwner, with any current hold.
func (s *session) enter(ctx context.Context, r request) (*Hold, error) {
	s.mu.Lock()
	var h *Hold
	for h = range s.holds {
		break
	}
	s.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("lock %s: %w", s.lock.name, ErrNotHeld)
	}
	lease := s.claim.lease
	if r.leased {
		lease = r.lease
	}
	return s.reenter(ctx, h, lease)
}

// unlock ends h. For the last hold, the session ends before Redis is called.
func (s *session) unlock(ctx context.Context, h *Hold) error {
	s.mu.Lock()
	if cause := s.checkLocked(); cause != nil {
		s.mu.Unlock()
		return cause
	}
	if !s.locker.begin() {
		s.mu.Unlock()
		return ErrClosed // Close releases it
	}
	defer s.locker.end()
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

// abandon ends the session with cause, and releases the lock.
func (s *session) abandon(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.endLocked(cause)
	s.mu.Unlock()
	s.sendCount(context.Background()) // if there is no reply, the lease ends
}

// sendCount writes the number of holds to Redis. It takes turns with other calls, so that
// counts arrive in order and no renewal is in progress when the last one is sent.
func (s *session) sendCount(ctx context.Context) error {
	s.turn <- struct{}{} // each turn lasts for one call at most
	defer s.give()
	if s.released {
		return nil // a concurrent unlock has released everything
	}
	s.mu.Lock()
	c := s.claim
	c.count = len(s.holds)
	s.mu.Unlock()

	s.released = c.count == 0
	p, err := s.release(ctx, c)
	if c.count > 0 {
		if errors.Is(err, ErrLost) {
			s.lose()
		}
		return err
	}
	if err != nil && !errors.Is(err, ErrLost) {
		s.locker.settle(c.owner, func() { s.locker.withdraw(s.lock.kind, c) })
	}
	s.locker.forget(s)
	notified := s.others(p.notified)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveGateLocked(notified)
	return err
}

// release sends c.count, and repeats it if there was no reply. If the second call finds no
// hold before the deadline, the lock was not lost: the first call has released it.
func (s *session) release(ctx context.Context, c claim) (released, error) {
	var p released
	var err error
	for try := range 2 {
		call, cancel := s.locker.bounded(ctx)
		p, err = s.lock.kind.release(call, c)
		cancel()
		if err == nil && !p.held && (try == 0 || !time.Now().Before(s.until())) {
			return p, ErrLost
		}
		if err == nil || replied(err) {
			break
		}
	}
	return p, err
}

func (s *session) until() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}
