package lock

import (
	"context"
	"sync"
	"time"
)

// A session is the state of one lock held by one owner, from the first hold to the last. It
// owns the watchdog, two timers that stop before the release is sent, and the listener.
type session struct {
	locker   *Locker
	lock     *Lock
	claim    claim // owner and lease; count is the number of holds
	token    int64
	watched  bool
	turn     chan struct{} // capacity one: the right to send calls that depend on the count
	released bool          // the release was sent; guarded by turn

	mu       sync.Mutex // guards what follows; never held over I/O
	holds    map[*Hold]struct{}
	deadline time.Time // the lock is certainly held before this time
	cause    error     // nil while it is held: then ErrReleased, ErrLost or ErrClosed
	pass     *pass     // for other callers of this process; nil if none wait for this session
	expiry   *time.Timer
	renewal  *time.Timer    // nil unless watched
	forced   *forceListener // nil unless it listens, or will listen
}

// safe returns the part of a lease that may be relied on: 1 % and 2 ms are reserved for
// clocks that run at different speeds.
func safe(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

// open creates the first hold of a session from a grant. It returns errLate if the lease is
// already over, and ErrClosed.
func (l *Locker) open(ctx context.Context, a *acquisition, o outcome) (*Hold, error) {
	s := &session{
		locker: l, lock: a.lock, claim: a.claim, token: o.token, watched: a.watched,
		turn: make(chan struct{}, 1), holds: make(map[*Hold]struct{}, 1),
		deadline: o.sent.Add(safe(a.claim.lease)),
	}
	if a.lock.traits.exclusive {
		s.pass = a.pass
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := time.Until(s.deadline)
	if left <= 0 {
		return nil, errLate
	}
	if !l.remember(s) {
		return nil, ErrClosed
	}
	s.expiry = time.AfterFunc(left, s.expire)
	if s.watched {
		s.renewal = time.AfterFunc(time.Until(o.sent.Add(s.claim.lease/3)), s.renew)
	}
	s.listenLocked()
	return s.addLocked(ctx), nil
}

// remember registers s for WithOwner and Close; false if the Locker is closed.
func (l *Locker) remember(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.sessions[s.holdKey()] = s
	return true
}

// forget unregisters s.
func (l *Locker) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.holdKey()] == s {
		delete(l.sessions, s.holdKey())
	}
}

// session returns the current session for g, or nil.
func (l *Locker) session(g holdKey) *session {
	l.mu.Lock()
	s := l.sessions[g]
	l.mu.Unlock()
	if s == nil || s.check() != nil {
		return nil
	}
	return s
}

func (s *session) holdKey() holdKey { return holdKey{s.lock.role, s.lock.name, s.claim.owner} }

// check ends the session if its deadline has passed, and returns the cause of its end.
func (s *session) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked()
}

func (s *session) checkLocked() error {
	if s.cause == nil && time.Until(s.deadline) <= 0 {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
	return s.cause
}

// expire is called by the expiry timer; the deadline may have moved meanwhile.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checkLocked() == nil {
		s.expiry.Reset(time.Until(s.deadline))
	}
}

// endLocked ends all holds: from now on the lock must not be relied on.
func (s *session) endLocked(cause error) {
	s.cause = cause
	s.expiry.Stop()
	if s.renewal != nil {
		s.renewal.Stop()
	}
	s.forced.stop()
	for h := range s.holds {
		h.endLocked(cause)
	}
}

// cleanUpLocked releases in the background what a lost session may still hold (its lease in
// Redis is a little longer), then admits another caller of this process.
func (s *session) cleanUpLocked() {
	if !s.locker.begin() {
		s.leaveGateLocked(0)
		return
	}
	defer s.locker.end()
	s.locker.settle(s.claim.owner, func() {
		s.locker.withdraw(s.lock.kind, s.claim)
		s.locker.forget(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaveGateLocked(0)
	})
}

// leaveGateLocked admits another caller of this process; notified is the number of other
// listeners.
func (s *session) leaveGateLocked(notified int64) {
	if s.pass != nil {
		s.pass.leave(notified)
		s.pass = nil
	}
}

// prolongLocked moves the deadline after a call that was sent at sent and renewed the
// lease; it never moves it back.
func (s *session) prolongLocked(sent time.Time, lease time.Duration) {
	if d := sent.Add(safe(lease)); d.After(s.deadline) {
		s.deadline = d
		s.expiry.Reset(time.Until(d))
	}
}

// take waits for the right to send; give returns it.
func (s *session) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) give() { <-s.turn }
