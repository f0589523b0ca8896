package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// A forceable kind supports Locked, RemainingLease and ForceUnlock.
type forceable interface {
	// leaseLeft returns the remaining lease in milliseconds, -1 if it has no end; done is
	// false if the lock is not held.
	leaseLeft(ctx context.Context) (reply, error)
	// force releases the lock for all owners and wakes the waiters; done is false if the
	// lock was not held.
	force(ctx context.Context) (reply, error)
}

// Locked reports whether the lock is held by any process. It may have changed when the
// call returns. For a read lock it reports whether there are readers, for a write lock
// whether there is a writer. For locks that [Multi] or [Redlock] combine it returns
// errors.ErrUnsupported; query each of them instead.
func (l *Lock) Locked(ctx context.Context) (bool, error) {
	r, err := l.callForceable(ctx, "inspect", forceable.leaseLeft)
	return r.done, err
}

// RemainingLease returns the time until the lease of the current holder expires if it is
// not renewed: 0 if the lock is not held, and the largest Duration if the lease has no
// end, which only other programs set. It supports the same kinds as Locked.
func (l *Lock) RemainingLease(ctx context.Context) (time.Duration, error) {
	r, err := l.callForceable(ctx, "inspect", forceable.leaseLeft)
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
	r, err := l.callForceable(ctx, "force unlock", forceable.force)
	return r.done, err
}

// callForceable calls a method of the lock's kind. verb is for errors.
func (l *Lock) callForceable(ctx context.Context, verb string, do func(forceable, context.Context) (reply, error)) (reply, error) {
	if err := l.check(ctx); err != nil {
		return reply{}, err
	}
	if l.err != nil {
		return reply{}, l.err
	}
	k, ok := l.kind.(forceable)
	if !ok {
		return reply{}, fmt.Errorf("%s lock %s: %w: use its parts", verb, l.name, errors.ErrUnsupported)
	}
	if !l.locker.beginCall() {
		return reply{}, ErrClosed
	}
	defer l.locker.endCall()
	ctx, cancel := context.WithTimeout(ctx, l.locker.callTimeout)
	defer cancel()
	r, err := do(k, ctx)
	if err != nil {
		err = fmt.Errorf("%s lock %s: %w", verb, l.name, err)
	}
	return r, err
}

// leaseLeft implements forceable for kinds whose key exists while the lock is held. mode
// is the mode of a read-write lock, otherwise empty.
func (l *Locker) leaseLeft(ctx context.Context, name, mode string) (reply, error) {
	return l.run(ctx, l.scripts["look"], 0, []string{name}, mode)
}

func (k *reentrant) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "")
}

func (k *reentrant) force(ctx context.Context) (reply, error) {
	return k.locker.forceDelete(ctx, k.name, k.channel)
}

func (s *simple) leaseLeft(ctx context.Context) (reply, error) {
	return s.locker.leaseLeft(ctx, s.name, "")
}

func (s *simple) force(ctx context.Context) (reply, error) {
	return s.locker.forceDelete(ctx, s.name, s.channel)
}

// forceDelete deletes a lock that is a single key and publishes its release.
func (l *Locker) forceDelete(ctx context.Context, name, channel string) (reply, error) {
	verb, err := l.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return l.run(ctx, l.scripts["force"], 0, []string{name}, verb, channel)
}

func (f *fair) force(ctx context.Context) (reply, error) {
	verb, err := f.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return f.locker.run(ctx, f.unlock, 0, f.keys, "", "all", verb, f.channel, fairWaitTime.Milliseconds())
}

func (k *reader) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "read")
}
func (w *writer) leaseLeft(ctx context.Context) (reply, error) {
	return w.locker.leaseLeft(ctx, w.name, "write")
}

func (k *reader) force(ctx context.Context) (reply, error) { return k.forceMode(ctx, "read", "0") }
func (w *writer) force(ctx context.Context) (reply, error) { return w.forceMode(ctx, "write", "1") }

func (r *readwrite) forceMode(ctx context.Context, mode, message string) (reply, error) {
	verb, err := r.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return r.locker.run(ctx, r.locker.scripts["force_mode"], 0, []string{r.name}, mode, verb, r.channel, message, r.holdPrefix)
}

// listenAfter is how long a lock is held before its session listens for ForceUnlock. Most
// locks are released earlier and cause no cost.
const listenAfter = time.Second

// A forceNotifier is a kind whose ForceUnlock is published on a channel.
type forceNotifier interface {
	forceChannel() (h *hub, channel string)
}

func (k *reentrant) forceChannel() (*hub, string) { return k.locker.hub, k.channel }
func (s *simple) forceChannel() (*hub, string)    { return s.locker.hub, s.channel }
func (r *readwrite) forceChannel() (*hub, string) { return r.locker.hub, r.channel }

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
	if _, ok := s.lock.kind.(forceNotifier); !ok || s.params.lease <= 3*listenAfter {
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
// still holds the lock, until ctx ends. If there is no subscription, renewals notice a
// loss.
func (s *session) listenForForce(ctx context.Context) {
	if !s.locker.beginCall() {
		return
	}
	defer s.locker.endCall()
	h, channel := s.lock.kind.(forceNotifier).forceChannel()
	for ctx.Err() == nil {
		sub, err := h.subscribe(ctx, channel)
		if err != nil {
			sleep[struct{}](ctx, nil, s.params.lease/3)
			continue
		}
		sleep(ctx, sub.ready(), s.params.lease/3)
		s.setSubscribed()
		for ctx.Err() == nil && !sub.isClosed() {
			sub.drain()
			if !s.verify(ctx) {
				break
			}
			sleep(ctx, sub.notify, s.params.lease)
		}
		sub.close()
	}
}

// setSubscribed records that the listener is a subscriber of the channel.
func (s *session) setSubscribed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forceListener.isSubscribed = true
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
// lease, and ends the session if not. An error is ignored. It returns false if the
// session has ended.
func (s *session) verify(ctx context.Context) bool {
	if s.lockSend(ctx) != nil {
		return false
	}
	defer s.unlockSend()
	if s.released || s.endCause() != nil {
		return false
	}
	call, cancel := s.locker.callContext(ctx)
	defer cancel()
	c := s.params
	c.lease = max(time.Until(s.currentDeadline()), time.Millisecond) // the remaining lease, so that it is not extended
	held, err := s.lock.kind.extend(call, c)
	if err == nil && !held {
		s.markLost()
	}
	return err != nil || held
}
