package lock

import (
	"context"
	"sync"
	"time"
)

// A session is what one owner has of one lock, from the first hold to the last.
// It owns the watchdog, two timers that stop before the release is sent, and the
// listener.
type session struct {
	locker    *Locker
	lock      *Lock
	params    callParams // owner and lease; count is the number of holds
	token     int64
	autoRenew bool
	sendLock  chan struct{} // holds one: the right to send what depends on the count
	released  bool          // Redis was told of the end; guarded by turn

	mu            sync.Mutex // guards what follows; never held over I/O
	holds         map[*Hold]struct{}
	deadline      time.Time // we hold it for certain before
	cause         error     // nil while it is held: then ErrReleased, ErrLost or ErrClosed
	ticket        *ticket   // for the neighbours; nil if they do not wait for us
	expiryTimer   *time.Timer
	renewTimer    *time.Timer    // nil unless watched
	forceListener *forceListener // nil unless it listens, or will
}

// reliableLease is the part of a lease that we rely on: 1 % and 2 ms are left for clocks
// that run at different speeds.
func reliableLease(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

// openSession makes the first hold of a session from a grant. It fails with errGrantExpired
// when the lease is over already, and with ErrClosed.
func (l *Locker) openSession(ctx context.Context, a *acquisition, o outcome) (*Hold, error) {
	s := &session{
		locker: l, lock: a.lock, params: a.params, token: o.token, autoRenew: a.autoRenew,
		sendLock: make(chan struct{}, 1), holds: make(map[*Hold]struct{}, 1),
		deadline: o.sent.Add(reliableLease(a.params.lease)),
	}
	if a.lock.traits.exclusive {
		s.ticket = a.ticket
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
	s.expiryTimer = time.AfterFunc(left, s.expire)
	if s.autoRenew {
		s.renewTimer = time.AfterFunc(time.Until(o.sent.Add(s.params.lease/3)), s.renew)
	}
	s.startForceListenerLocked()
	return s.addLocked(ctx), nil
}

// addSession keeps s for WithOwner and Close; false when the Locker is closed.
func (l *Locker) addSession(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.sessions[s.holdKey()] = s
	return true
}

// removeSession undoes remember.
func (l *Locker) removeSession(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.holdKey()] == s {
		delete(l.sessions, s.holdKey())
	}
}

// session returns the running session of g, or nil.
func (l *Locker) session(g holdKey) *session {
	l.mu.Lock()
	s := l.sessions[g]
	l.mu.Unlock()
	if s == nil || s.endCause() != nil {
		return nil
	}
	return s
}

func (s *session) holdKey() holdKey { return holdKey{s.lock.namespace, s.lock.name, s.params.owner} }

// endCause ends the session if its deadline is over, and returns why it has ended.
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

// expire is what the expiry timer does: the deadline may have moved meanwhile.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCauseLocked() == nil {
		s.expiryTimer.Reset(time.Until(s.deadline))
	}
}

// endLocked ends all holds: from here on nobody may rely on the lock.
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

// cleanUpLocked gives back in the background what a lost session may still have
// (Redis keeps it a little longer than we rely on it), then lets a neighbour in.
func (s *session) cleanUpLocked() {
	if !s.locker.beginCall() {
		s.leaveQueueLocked(0)
		return
	}
	defer s.locker.endCall()
	s.locker.releaseInBackground(s.params.owner, func() {
		s.locker.retryRelease(s.lock.kind, s.params)
		s.locker.removeSession(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaveQueueLocked(0)
	})
}

// leaveQueueLocked lets a neighbour in, when so many others were told.
func (s *session) leaveQueueLocked(notified int64) {
	if s.ticket != nil {
		s.ticket.leave(notified)
		s.ticket = nil
	}
}

// extendDeadlineLocked moves the deadline after a call that was sent at sent and gave
// the lock another lease; it never moves back.
func (s *session) extendDeadlineLocked(sent time.Time, lease time.Duration) {
	if d := sent.Add(reliableLease(lease)); d.After(s.deadline) {
		s.deadline = d
		s.expiryTimer.Reset(time.Until(d))
	}
}

// lockSend waits for the right to send; give returns it.
func (s *session) lockSend(ctx context.Context) error {
	select {
	case s.sendLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *session) unlockSend() { <-s.sendLock }
