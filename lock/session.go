package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A session is what one owner holds of one lock, from the first hold to the last. It owns
// the watchdog, two timers, which stop before the release is sent, and the force
// listener.
type session struct {
	locker    *Locker
	lock      *Lock
	params    callParams // owner and lease; count is set for each call
	token     int64
	autoRenew bool
	sendLock  chan struct{} // has capacity 1; held while a call is in progress
	released  bool          // the release was sent; guarded by sendLock
	result    error         // of the release; guarded by sendLock

	mu            sync.Mutex // guards the fields below, and those of holds; never held during I/O
	holds         map[*Hold]struct{}
	deadline      time.Time // the lock is certainly held until then
	cause         error     // nil while held; then ErrReleased, ErrLost or ErrClosed
	ticket        *ticket   // in the local queue; nil if local waiters do not wait for the session
	expiryTimer   *time.Timer
	renewTimer    *time.Timer    // nil unless autoRenew
	forceListener *forceListener // nil unless started
}

// reliableLease returns the part of a lease that the holder relies on. 1% and 2 ms are
// reserved for clocks that run at different speeds.
func reliableLease(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

// openSession creates a session with its first hold from a grant. It returns
// errGrantExpired if the lease is over already, and ErrClosed if the Locker is closed.
func (l *Locker) openSession(ctx context.Context, a *acquisition, o outcome) (*Hold, error) {
	s := &session{
		locker: l, lock: a.lock, params: a.params, token: o.token, autoRenew: a.autoRenew,
		sendLock: make(chan struct{}, 1), holds: make(map[*Hold]struct{}, 1),
		deadline: o.sent.Add(reliableLease(a.params.lease)),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := time.Until(s.deadline)
	if left <= 0 {
		return nil, errGrantExpired
	}
	if !l.addSession(s) {
		return nil, ErrClosed
	}
	if a.lock.traits.exclusive {
		s.ticket, a.ticket = a.ticket, nil // local waiters wait for the end of the session
	}
	s.expiryTimer = time.AfterFunc(left, s.expire)
	if s.autoRenew {
		s.renewTimer = time.AfterFunc(time.Until(o.sent.Add(s.params.lease/3)), s.renew)
	}
	s.startForceListenerLocked()
	return s.addLocked(ctx), nil
}

// addSession registers s for WithOwner and Close. It returns false if the Locker is
// closed.
func (l *Locker) addSession(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.sessions[s.holdKey()] = s
	return true
}

// removeSession removes s.
func (l *Locker) removeSession(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.holdKey()] == s {
		delete(l.sessions, s.holdKey())
	}
}

// session returns the active session of g, or nil.
func (l *Locker) session(ctx context.Context, g holdKey) *session {
	l.mu.Lock()
	s := l.sessions[g]
	l.mu.Unlock()
	if s == nil || !s.isHeld(ctx) {
		return nil
	}
	return s
}

// isHeld reports whether the lock is held. If it was unlocked, its release has been sent then.
func (s *session) isHeld(ctx context.Context) bool {
	cause := s.endCause()
	if errors.Is(cause, ErrReleased) {
		_ = s.sendCount(ctx) // the unlock may be about to, and returns the result
	}
	return cause == nil
}

func (s *session) holdKey() holdKey { return holdKey{s.lock.namespace, s.lock.name, s.params.owner} }

// endCause ends the session if its deadline has passed, and returns why it has ended; nil
// while the lock is held.
func (s *session) endCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endCauseLocked()
}

func (s *session) endCauseLocked() error {
	if s.cause == nil && time.Until(s.deadline) <= 0 {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
	return s.cause
}

// expire is called by the expiry timer. The deadline may have moved since the timer was
// set.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCauseLocked() == nil {
		s.expiryTimer.Reset(time.Until(s.deadline))
	}
}

// endLocked ends the session and all its holds, which must not rely on the lock any more.
func (s *session) endLocked(cause error) {
	s.cause = cause
	s.expiryTimer.Stop()
	if s.renewTimer != nil {
		s.renewTimer.Stop()
	}
	s.forceListener.stop()
	for h := range s.holds {
		h.endLocked(cause)
	}
}

// cleanUpLocked releases in the background what a lost session may still hold in Redis,
// where the lease ends a little later, and then admits the next local waiter.
func (s *session) cleanUpLocked() {
	if !s.locker.beginCall() {
		s.leaveQueueLocked(0)
		return
	}
	defer s.locker.endCall()
	s.locker.releaseInBackground(s.params.owner, func() {
		s.locker.retryRelease(s.lock.kind, s.params, always)
		s.locker.removeSession(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaveQueueLocked(0)
	})
}

// leaveQueueLocked admits the next local waiter. notified is the number of subscribers in
// other processes that received the release.
func (s *session) leaveQueueLocked(notified int64) {
	if s.ticket != nil {
		s.ticket.leave(notified)
		s.ticket = nil
	}
}

// extendDeadlineLocked moves the deadline after a call, sent at the time sent, that
// renewed the lease. It never moves the deadline back.
func (s *session) extendDeadlineLocked(sent time.Time, lease time.Duration) {
	if d := sent.Add(reliableLease(lease)); d.After(s.deadline) {
		s.deadline = d
		s.expiryTimer.Reset(time.Until(d))
	}
}

// lockSend acquires sendLock; unlockSend releases it.
func (s *session) lockSend(ctx context.Context) error {
	select {
	case s.sendLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) unlockSend() { <-s.sendLock }

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
	if next != nil {
		return next, nil // also if h has been unlocked meanwhile
	}
	return nil, err
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
	return s.reenter(ctx, h, cmp.Or(r.lease, s.params.lease))
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
		return s.result // another call has released everything
	}
	s.mu.Lock()
	c := s.params
	c.count = len(s.holds)
	s.mu.Unlock()

	p, err := s.release(ctx, c)
	s.released, s.result = c.count == 0, err
	if c.count > 0 {
		if errors.Is(err, ErrLost) {
			s.markLost()
		}
		return err
	}
	if err != nil && !errors.Is(err, ErrLost) {
		s.locker.releaseInBackground(c.owner, func() { s.locker.retryRelease(s.lock.kind, c, always) })
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
