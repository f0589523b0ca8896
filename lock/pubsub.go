package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A hub shares Pub/Sub connections among all waiters of a Locker: one connection, or in a
// cluster with sharded channels one to each master that has one of the channels. A channel
// is subscribed while it has listeners.
type hub struct {
	route     func(ctx context.Context, channel string) (route, error)
	heartbeat time.Duration

	mu     sync.Mutex // guards what follows and all lines; never held over I/O
	lines  map[string]*subscriber
	closed bool
	wg     sync.WaitGroup
}

// A route identifies the connection for a channel.
type route struct {
	name    string // equal names share a connection
	open    func(ctx context.Context) *redis.PubSub
	sharded bool
}

func newHub(find func(context.Context, string) (route, error)) *hub {
	return &hub{route: find, heartbeat: heartbeat, lines: make(map[string]*subscriber)}
}

// A subscription is one listener of one channel (Pub/Sub).
type subscription struct {
	woken   chan struct{} // capacity one: a message, or a reconnection
	channel string
	line    *subscriber
	topic   *topic
}

// A topic is one channel on one connection.
type topic struct {
	subscribers map[*subscription]struct{}
	sent        bool          // the last command sent for it was SUBSCRIBE
	pending     int           // unconfirmed SUBSCRIBEs
	heard       bool          // all are confirmed: messages are received
	ready       chan struct{} // closed while heard
}

// listen subscribes to channel without waiting; ready signals the server's confirmation.
// The caller must close the subscription.
func (h *hub) listen(ctx context.Context, channel string) (*subscription, error) {
	r, err := h.route(ctx, channel)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	ln := h.lines[r.name]
	if ln == nil {
		ln = newSubscriber(h, r)
		h.lines[r.name] = ln
		h.wg.Go(ln.run)
	}
	tp := ln.topics[channel]
	if tp == nil {
		tp = &topic{subscribers: make(map[*subscription]struct{}), ready: make(chan struct{})}
		ln.topics[channel] = tp
	}
	sub := &subscription{woken: make(chan struct{}, 1), channel: channel, line: ln, topic: tp}
	tp.subscribers[sub] = struct{}{}
	ln.kickLocked()
	return sub, nil
}

// ready returns a channel that is closed once the server has confirmed the subscription.
func (s *subscription) ready() <-chan struct{} {
	s.line.hub.mu.Lock()
	defer s.line.hub.mu.Unlock()
	return s.topic.ready
}

// gone reports whether the connection was given up: listen again.
func (s *subscription) gone() bool { return s.line.ctx.Err() != nil }

// drain discards messages received so far.
func (s *subscription) drain() {
	select {
	case <-s.woken:
	default:
	}
}

// close ends s. The channel is unsubscribed when it has no other listener.
func (s *subscription) close() {
	s.line.hub.mu.Lock()
	defer s.line.hub.mu.Unlock()
	delete(s.topic.subscribers, s)
	s.line.kickLocked()
}

// close ends all connections and waits for their goroutines.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, ln := range h.lines {
		ln.cancel()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// wakeLocked wakes every listener of tp.
func (tp *topic) wakeLocked() {
	for sub := range tp.subscribers {
		select {
		case sub.woken <- struct{}{}:
		default:
		}
	}
}

// muteLocked records that messages of tp are no longer received.
func (tp *topic) muteLocked() {
	if tp.heard {
		tp.heard = false
		tp.ready = make(chan struct{})
	}
}
