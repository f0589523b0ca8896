package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A hub shares pub/sub connections among all waiters of a Locker: one
// connection, or in a cluster with sharded channels one to each master that has
// a channel of ours. A channel is subscribed while at least one waiter listens.
type hub struct {
	findRoute func(ctx context.Context, channel string) (route, error)
	heartbeat time.Duration

	mu          sync.Mutex // guards what follows and all lines; never held over I/O
	subscribers map[string]*subscriber
	closed      bool
	wg          sync.WaitGroup
}

// A route says over which connection a channel is heard.
type route struct {
	name    string // equal names share a connection
	open    func(ctx context.Context) *redis.PubSub
	sharded bool
}

func newHub(find func(context.Context, string) (route, error)) *hub {
	return &hub{findRoute: find, heartbeat: heartbeat, subscribers: make(map[string]*subscriber)}
}

// A subscription is one waiter on one channel (pub/sub).
type subscription struct {
	notify     chan struct{} // holds one: a message, or a connection that is back
	channel    string
	subscriber *subscriber
	topic      *topic
}

// A topic is one channel on one line.
type topic struct {
	subscribers  map[*subscription]struct{}
	isSubscribed bool          // the last command sent for it was SUBSCRIBE
	pending      int           // SUBSCRIBEs that are not confirmed yet
	isConfirmed  bool          // all are confirmed: messages reach us
	ready        chan struct{} // closed while heard
}

// subscribe asks for channel and returns at once; ready tells when the server has
// confirmed. The caller must close the subscription.
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

// ready is closed once the server has confirmed the subscription.
func (s *subscription) ready() <-chan struct{} {
	s.subscriber.hub.mu.Lock()
	defer s.subscriber.hub.mu.Unlock()
	return s.topic.ready
}

// isClosed reports whether the connection is given up: listen again.
func (s *subscription) isClosed() bool { return s.subscriber.ctx.Err() != nil }

// drain forgets what was heard so far.
func (s *subscription) drain() {
	select {
	case <-s.notify:
	default:
	}
}

// close ends s. The channel is unsubscribed when nobody else listens.
func (s *subscription) close() {
	s.subscriber.hub.mu.Lock()
	defer s.subscriber.hub.mu.Unlock()
	delete(s.topic.subscribers, s)
	s.subscriber.notifyChangedLocked()
}

// close ends all connections and waits for their goroutines.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, ln := range h.subscribers {
		ln.cancel()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// notifyLocked lets every listener of tp try again.
func (tp *topic) notifyLocked() {
	for sub := range tp.subscribers {
		select {
		case sub.notify <- struct{}{}:
		default:
		}
	}
}

// unconfirmLocked says that messages to tp no longer reach us.
func (tp *topic) unconfirmLocked() {
	if tp.isConfirmed {
		tp.isConfirmed = false
		tp.ready = make(chan struct{})
	}
}
