package lock

import (
	"context"
	"time"
)

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
