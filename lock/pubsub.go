package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A hub shares pub/sub connections among all waiters of a Locker: one connection, or in a
// cluster with sharded channels one to each master that has a subscribed channel. A
// channel is subscribed while it has at least one waiter.
type hub struct {
	findRoute func(ctx context.Context, channel string) (route, error)
	heartbeat time.Duration

	mu          sync.Mutex // guards the fields below and all topics; never held during I/O
	subscribers map[string]*subscriber
	closed      bool
	wg          sync.WaitGroup
}

// A route is the connection that serves a channel.
type route struct {
	name    string // routes with the same name share a connection
	open    func(ctx context.Context) *redis.PubSub
	sharded bool
}

func newHub(find func(context.Context, string) (route, error)) *hub {
	return &hub{findRoute: find, heartbeat: heartbeat, subscribers: make(map[string]*subscriber)}
}

// A subscription is one waiter's subscription of one channel.
type subscription struct {
	notify     chan struct{} // has capacity 1: a message was received, or the connection was restored
	channel    string
	subscriber *subscriber
	topic      *topic
}

// A topic is the state of one channel on one connection.
type topic struct {
	subscribers  map[*subscription]struct{}
	isSubscribed bool          // the last command sent was SUBSCRIBE
	pending      int           // number of SUBSCRIBE commands not confirmed yet
	isConfirmed  bool          // all are confirmed: messages are received
	ready        chan struct{} // closed while isConfirmed
}

// subscribe subscribes to channel and returns without waiting; ready reports when the
// server has confirmed. The caller must close the subscription.
func (h *hub) subscribe(ctx context.Context, channel string) (*subscription, error) {
	r, err := h.findRoute(ctx, channel)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	ln := h.subscribers[r.name]
	if ln == nil {
		ln = newSubscriber(h, r)
		h.subscribers[r.name] = ln
		h.wg.Go(ln.run)
	}
	tp := ln.topics[channel]
	if tp == nil {
		tp = &topic{subscribers: make(map[*subscription]struct{}), ready: make(chan struct{})}
		ln.topics[channel] = tp
	}
	sub := &subscription{notify: make(chan struct{}, 1), channel: channel, subscriber: ln, topic: tp}
	tp.subscribers[sub] = struct{}{}
	ln.notifyChangedLocked()
	return sub, nil
}

// ready returns a channel that is closed when the server has confirmed the subscription.
func (s *subscription) ready() <-chan struct{} {
	s.subscriber.hub.mu.Lock()
	defer s.subscriber.hub.mu.Unlock()
	return s.topic.ready
}

// isClosed reports whether the connection was closed. The caller must subscribe again.
func (s *subscription) isClosed() bool { return s.subscriber.ctx.Err() != nil }

// drain discards a pending notification.
func (s *subscription) drain() {
	select {
	case <-s.notify:
	default:
	}
}

// close ends s. The channel is unsubscribed when it has no waiter left.
func (s *subscription) close() {
	s.subscriber.hub.mu.Lock()
	defer s.subscriber.hub.mu.Unlock()
	delete(s.topic.subscribers, s)
	s.subscriber.notifyChangedLocked()
}

// close closes all connections and waits for their goroutines.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, ln := range h.subscribers {
		ln.cancel()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// notifyLocked notifies all waiters of t, which then try again.
func (t *topic) notifyLocked() {
	for sub := range t.subscribers {
		select {
		case sub.notify <- struct{}{}:
		default:
		}
	}
}

// unconfirmLocked records that messages of t are not received any more.
func (t *topic) unconfirmLocked() {
	if t.isConfirmed {
		t.isConfirmed = false
		t.ready = make(chan struct{})
	}
}
