package lock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	heartbeat    = 3 * time.Second       // time without a message after which a PING is sent
	firstBackoff = 50 * time.Millisecond // pause after the first failed connection
	lastBackoff  = 2 * time.Second       // longest pause
)

// A subscriber is a pub/sub connection, which is restored while it has waiters. In a
// cluster with sharded channels a failed one is closed instead, because its channels may
// have moved, and the waiters subscribe again. The hub's mutex guards topics.
type subscriber struct {
	hub     *hub
	route   route
	ctx     context.Context // ends with the subscriber
	cancel  context.CancelFunc
	topics  map[string]*topic
	changed chan struct{} // has capacity 1: topics have changed
}

func newSubscriber(h *hub, r route) *subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &subscriber{
		hub: h, route: r, ctx: ctx, cancel: cancel, topics: make(map[string]*topic), changed: make(chan struct{}, 1),
	}
}

// signal sends to a channel of capacity 1, unless a signal is pending there.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run keeps a connection until the hub is closed or there are no waiters left.
func (s *subscriber) run() {
	for pause := firstBackoff; ; {
		if pause = min(2*pause, lastBackoff); s.serve() {
			pause = firstBackoff
		}
		if sleep[struct{}](s.ctx, nil, pause/2+rand.N(pause/2)); s.ctx.Err() != nil {
			return
		}
		if s.route.sharded {
			s.closeAndNotify()
			return
		}
	}
}

// serve opens a connection and serves it until it fails, or there were no waiters for a heartbeat. It sends a PING if
// the server is silent. It reports whether anything was received.
func (s *subscriber) serve() (served bool) {
	s.resetTopics()
	ctx, cancel := context.WithCancel(s.ctx)
	conn, messages := s.route.open(ctx), make(chan any)
	var reader sync.WaitGroup
	reader.Go(func() { receive(ctx, conn, messages) })
	defer reader.Wait()
	defer conn.Close() // wakes the reader
	defer cancel()
	tick := time.NewTicker(s.hub.heartbeat)
	defer tick.Stop()
	for silent := 1; ; { // the heartbeats without a message, and the current one
		select {
		case m, isOpen := <-messages:
			if !isOpen || !s.handle(m) {
				return served
			}
			silent, served = 0, true
		case <-s.changed:
			if s.sendChanges(ctx, conn) != nil {
				return served
			}
		case <-ctx.Done():
			return served
		case <-tick.C:
			if silent++; s.closeIfUnused() || silent > 2 || silent == 2 && conn.Ping(ctx) != nil {
				return served
			}
		}
	}
}

// receive passes the messages of a connection on, until it fails or ctx is done.
func receive(ctx context.Context, conn *redis.PubSub, messages chan<- any) {
	defer close(messages)
	for {
		message, err := conn.Receive(ctx)
		if err != nil {
			return
		}
		select {
		case messages <- message:
		case <-ctx.Done():
			return
		}
	}
}

// resetTopics resets the state that belonged to the last connection, and has the channels subscribed on the next.
func (s *subscriber) resetTopics() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	signal(s.changed)
	for name, tp := range s.topics {
		tp.isSubscribed, tp.pending = false, 0
		tp.unconfirmLocked()
		if len(tp.subscribers) == 0 {
			delete(s.topics, name)
		}
	}
}

// pendingChanges returns the channels to subscribe and to unsubscribe.
func (s *subscriber) pendingChanges() (join, leave []string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for name, tp := range s.topics {
		switch {
		case len(tp.subscribers) > 0 && !tp.isSubscribed:
			tp.isSubscribed = true
			tp.pending++
			join = append(join, name)
		case len(tp.subscribers) == 0 && tp.isSubscribed:
			tp.isSubscribed = false
			tp.unconfirmLocked()
			leave = append(leave, name)
		}
		if len(tp.subscribers) == 0 && tp.pending == 0 {
			delete(s.topics, name)
		}
	}
	return join, leave
}

// sendChanges sends the commands for the channels to unsubscribe and to subscribe, in this order: one for all of them, or
// one for each in the form for sharded channels, because one command may only have channels of one slot.
func (s *subscriber) sendChanges(ctx context.Context, conn *redis.PubSub) error {
	join, leave := s.pendingChanges()
	subscribe, unsubscribe, most := conn.Subscribe, conn.Unsubscribe, max(len(join), len(leave), 1)
	if s.route.sharded {
		subscribe, unsubscribe, most = conn.SSubscribe, conn.SUnsubscribe, 1
	}
	for channels := range slices.Chunk(leave, most) {
		if err := unsubscribe(ctx, channels...); err != nil {
			return err
		}
	}
	for channels := range slices.Chunk(join, most) {
		if err := subscribe(ctx, channels...); err != nil {
			return err
		}
	}
	return nil
}

// closeIfUnused closes the subscriber if it has no topics, and reports whether it did.
func (s *subscriber) closeIfUnused() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(s.topics) > 0 {
		return false
	}
	s.removeLocked()
	return true
}

// closeAndNotify closes the subscriber and notifies its waiters, which subscribe again.
func (s *subscriber) closeAndNotify() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.removeLocked()
	for _, tp := range s.topics {
		tp.notifyLocked()
	}
}

func (s *subscriber) removeLocked() {
	s.cancel()
	delete(s.hub.subscribers, s.route.name)
}

// handle processes one message of the connection. It returns false if the server has
// ended a subscription that is still needed.
func (s *subscriber) handle(message any) bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if tp := s.topics[m.Channel]; tp != nil {
			tp.notifyLocked()
		}
	case *redis.Subscription:
		tp := s.topics[m.Channel]
		if tp == nil {
			return true
		}
		if m.Kind == "unsubscribe" || m.Kind == "sunsubscribe" {
			return !tp.isSubscribed || tp.pending > 0
		}
		tp.pending--
		if tp.pending == 0 && tp.isSubscribed {
			tp.isConfirmed = true
			tp.notifyLocked() // messages may have been missed before the confirmation
			close(tp.ready)   // last, so that a waiter for ready makes one attempt, not two
		}
		signal(s.changed) // so that a topic without waiters is removed
	}
	return true
}

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
	signal(ln.changed)
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

// close ends s, if there is one. The channel is unsubscribed when it has no waiter left.
func (s *subscription) close() {
	if s == nil {
		return
	}
	s.subscriber.hub.mu.Lock()
	defer s.subscriber.hub.mu.Unlock()
	delete(s.topic.subscribers, s)
	signal(s.subscriber.changed)
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
		signal(sub.notify)
	}
}

// unconfirmLocked records that messages of t are not received any more.
func (t *topic) unconfirmLocked() {
	if t.isConfirmed {
		t.isConfirmed = false
		t.ready = make(chan struct{})
	}
}
