package lock

import (
	"context"
	"time"
)

// listenAfter is how long a lock is held before its holder listens for being
// overruled: most are given back sooner, and pay nothing.
const listenAfter = time.Second

// A forceNotifier is a kind that publishes, on one channel, that its lock was taken away.
type forceNotifier interface {
	forceChannel() (h *hub, channel string)
}

func (k *reentrant) forceChannel() (*hub, string) { return k.locker.hub, k.channel }
func (k *simple) forceChannel() (*hub, string)    { return k.locker.hub, k.channel }
func (k *readwrite) forceChannel() (*hub, string) { return k.locker.hub, k.channel }

// A forceListener hears, for a session, what is published of its lock while it is held:
// that is its loss, or of a reader's lock perhaps that of somebody else.
type forceListener struct {
	timer        *time.Timer
	cancel       context.CancelFunc // ends the goroutine
	isSubscribed bool               // it is counted among those who hear of a release; guarded by the session
}

// startForceListenerLocked begins to listen when s has been held for a while. Who renews
// sooner than that finds out as fast.
func (s *session) startForceListenerLocked() {
	if _, ok := s.lock.kind.(forceNotifier); !ok || s.params.lease <= 3*listenAfter {
		return
	}
	ctx, cancel := context.WithCancel(s.locker.ctx)
	s.forceListener = &forceListener{cancel: cancel}
	s.forceListener.timer = time.AfterFunc(listenAfter, func() { s.listenForForce(ctx) })
}

// stop ends the listener, which may still be counted as a listener for a moment.
func (e *forceListener) stop() {
	if e != nil {
		e.timer.Stop()
		e.cancel()
	}
}

// listenForForce looks, at each message and after each connection that was lost, whether s
// still has what it holds, until ctx ends. Without a subscription renewal finds out.
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

// setSubscribed notes that the listener is counted among those who hear of a release.
func (s *session) setSubscribed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forceListener.isSubscribed = true
}

// otherListeners is how many of those who heard of a release are not this process itself.
func (s *session) otherListeners(notified int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forceListener != nil && s.forceListener.isSubscribed {
		notified--
	}
	return max(notified, 0)
}

// verify asks whether Redis still has the session, without prolonging it, and ends
// it if not. No answer says nothing.
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
	c.lease = max(time.Until(s.currentDeadline()), time.Millisecond) // which it has
	held, err := s.lock.kind.extend(call, c)
	if err == nil && !held {
		s.markLost()
	}
	return err != nil || held
}
