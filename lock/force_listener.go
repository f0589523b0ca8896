package lock

import (
	"context"
	"time"
)

// listenAfter is the time after which a holder subscribes to forced releases: most locks
// are released sooner, and cost nothing more.
const listenAfter = time.Second

// A forceNotifier is a kind that publishes forced releases on a channel.
type forceNotifier interface {
	forceChannel() (h *hub, channel string)
}

func (k *reentrant) forceChannel() (*hub, string) { return k.locker.hub, k.channel }
func (k *simple) forceChannel() (*hub, string)    { return k.locker.hub, k.channel }
func (k *readwrite) forceChannel() (*hub, string) { return k.locker.hub, k.channel }

// A forceListener receives, for a session, the messages about its lock while it is held: a
// forced release, or for a read lock perhaps the release of another reader.
type forceListener struct {
	timer  *time.Timer
	cancel context.CancelFunc // ends the goroutine
	heard  bool               // the subscription counts among the listeners of a release; guarded by the session
}

// listenLocked begins to listen when s has been held for a while. Who renews
// sooner than that finds out as fast.
func (s *session) listenLocked() {
	if _, ok := s.lock.kind.(forceNotifier); !ok || s.claim.lease <= 3*listenAfter {
		return
	}
	ctx, cancel := context.WithCancel(s.locker.life)
	s.forced = &forceListener{cancel: cancel}
	s.forced.timer = time.AfterFunc(listenAfter, func() { s.listen(ctx) })
}

// stop ends the listener, which may still be counted as a listener for a moment.
func (e *forceListener) stop() {
	if e != nil {
		e.timer.Stop()
		e.cancel()
	}
}

// listen looks, at each message and after each connection that was lost, whether s
// still has what it holds, until ctx ends. Without a subscription renewal finds out.
func (s *session) listen(ctx context.Context) {
	if !s.locker.begin() {
		return
	}
	defer s.locker.end()
	h, channel := s.lock.kind.(forceNotifier).forceChannel()
	for ctx.Err() == nil {
		sub, err := h.listen(ctx, channel)
		if err != nil {
			sleep[struct{}](ctx, nil, s.claim.lease/3)
			continue
		}
		sleep(ctx, sub.ready(), s.claim.lease/3)
		s.hears()
		for ctx.Err() == nil && !sub.gone() {
			sub.drain()
			if !s.look(ctx) {
				break
			}
			sleep(ctx, sub.woken, s.claim.lease)
		}
		sub.close()
	}
}

// hears notes that the listener is counted among those who hear of a release.
func (s *session) hears() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forced.heard = true
}

// others is how many of those who heard of a release are not this process itself.
func (s *session) others(notified int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forced != nil && s.forced.heard {
		notified--
	}
	return max(notified, 0)
}

// look asks whether Redis still has the session, without prolonging it, and ends
// it if not. No answer says nothing.
func (s *session) look(ctx context.Context) bool {
	if s.take(ctx) != nil {
		return false
	}
	defer s.give()
	if s.released || s.check() != nil {
		return false
	}
	call, cancel := s.locker.bounded(ctx)
	defer cancel()
	c := s.claim
	c.lease = max(time.Until(s.until()), time.Millisecond) // which it has
	held, err := s.lock.kind.extend(call, c)
	if err == nil && !held {
		s.lose()
	}
	return err != nil || held
}
