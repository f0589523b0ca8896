package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Locked reports whether the lock is held by any process. It may have changed when the
// call returns. For a read lock it reports whether there are readers, for a write lock
// whether there is a writer. For locks that [Multi] or [Redlock] combine it returns
// errors.ErrUnsupported; query each of them instead.
func (l *Lock) Locked(ctx context.Context) (bool, error) {
	r, err := l.callKind(ctx, "inspect", func(k *scripted) request { return k.look })
	return r.done, err
}

// RemainingLease returns the time until the lease of the current holder expires if it is
// not renewed: 0 if the lock is not held, and the largest Duration if the lease has no
// end, which only other programs set. It supports the same kinds as Locked.
func (l *Lock) RemainingLease(ctx context.Context) (time.Duration, error) {
	r, err := l.callKind(ctx, "inspect", func(k *scripted) request { return k.look })
	switch {
	case !r.done:
		return 0, err
	case r.n < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(r.n) * time.Millisecond, nil
}

// ForceUnlock releases the lock for all its holders, wakes the waiters, and reports
// whether it was held. It is for operators. A holder of a reentrant, fenced, simple or
// read-write lock of this package that has held it for at least a second is notified
// immediately: its hold ends with ErrLost. Other holders notice at their next renewal,
// after at most a third of the lease, or without renewal when the lease ends; until then
// they overlap with the next holder.
//
// It supports the same kinds as Locked. If the call returns an error, the lock may have
// been released; repeating the call may take it away from a new holder.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	r, err := l.callKind(ctx, "force unlock", func(k *scripted) request { return k.force })
	return r.done, err
}

// callKind runs a request of the lock's kind. verb is for errors.
func (l *Lock) callKind(ctx context.Context, verb string, of func(*scripted) request) (reply, error) {
	if err := l.check(ctx); err != nil {
		return reply{}, err
	}
	if l.err != nil {
		return reply{}, l.err // before the kind, which a Multi of nothing does not have
	}
	k, ok := l.kind.(*scripted)
	if !ok || of(k).script == nil {
		return reply{}, fmt.Errorf("%s lock %s: %w: use its parts", verb, l.name, errors.ErrUnsupported)
	}
	r, err := l.call(ctx, of(k))
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%s lock %s: %w", verb, l.name, err)
	}
	return r, err
}

// listenAfter is how long a lock is held before its session listens for ForceUnlock. Most
// locks are released earlier and cause no cost.
const listenAfter = time.Second

// A forceListener listens for messages about the lock of a session while it is held: its
// own loss or, for a read lock, perhaps that of another reader.
type forceListener struct {
	timer        *time.Timer
	cancel       context.CancelFunc // ends the goroutine
	isSubscribed bool               // it receives messages of releases too; guarded by session.mu
}

// startForceListenerLocked starts to listen after listenAfter. A session with a short
// lease needs no listener, because its renewals notice a loss as fast.
func (s *session) startForceListenerLocked() {
	if !s.lock.traits.publishesForce || s.params.lease <= 3*listenAfter {
		return
	}
	ctx, cancel := context.WithCancel(s.locker.ctx)
	s.forceListener = &forceListener{cancel: cancel}
	s.forceListener.timer = time.AfterFunc(listenAfter, func() { s.listenForForce(ctx) })
}

// stop ends the listener. For a short time it may still be counted as a subscriber.
func (f *forceListener) stop() {
	if f != nil {
		f.timer.Stop()
		f.cancel()
	}
}

// listenForForce verifies, at each message and after each reconnection, that the session
// still holds the lock, until ctx ends: a server that was gone may have come back empty. If
// there is no subscription, renewals notice a loss.
func (s *session) listenForForce(ctx context.Context) {
	if !s.locker.beginCall() {
		return
	}
	defer s.locker.endCall()
	channel := s.lock.kind.(*scripted).channels[0]
	for ctx.Err() == nil {
		sub, err := s.locker.hub.subscribe(ctx, channel)
		if err != nil {
			sleep[struct{}](ctx, nil, s.params.lease/3)
			continue
		}
		sleep(ctx, sub.ready(), s.params.lease/3)
		s.mu.Lock()
		s.forceListener.isSubscribed = true
		s.mu.Unlock()
		for wait := time.Duration(1); wait > 0 && ctx.Err() == nil && !sub.isClosed(); {
			sub.drain()
			wait = s.verify(ctx)
			sleep(ctx, sub.notify, wait)
		}
		sub.close()
	}
}

// otherListeners returns the number of notified subscribers without this session's own
// listener.
func (s *session) otherListeners(notified int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forceListener != nil && s.forceListener.isSubscribed {
		notified--
	}
	return max(notified, 0)
}

// verify asks Redis whether the session still holds the lock, without extending the
// lease, and ends the session if not. It returns after which time to ask again if there is
// no message, which is soon after an error; 0 if the session has ended.
func (s *session) verify(ctx context.Context) time.Duration {
	if s.lockSend(ctx) != nil {
		return 0
	}
	defer s.unlockSend()
	if s.released || s.endCause() != nil {
		return 0
	}
	call, cancel := s.locker.callContext(ctx)
	defer cancel()
	c := s.params
	c.lease = max(time.Until(s.currentDeadline()), time.Millisecond) // the remaining lease, so that it is not extended
	held, err := s.lock.kind.extend(call, c)
	switch {
	case err != nil:
		return min(s.params.lease/30, lastBackoff)
	case !held:
		s.markLost()
		return 0
	}
	return s.params.lease
}
