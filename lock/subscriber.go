package lock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	heartbeat    = 3 * time.Second       // idle time after which a PING is sent
	firstBackoff = 50 * time.Millisecond // pause after the first failed connection
	lastBackoff  = 2 * time.Second       // longest pause
)

// A subscriber is one Pub/Sub connection, reconnected while it has listeners. In a cluster
// with sharded channels a failed one is given up instead, because its channels may have
// moved: the listeners subscribe again. The hub's mutex guards topics.
type subscriber struct {
	hub    *hub
	route  route
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	topics map[string]*topic
	kick   chan struct{} // capacity one: topics have changed
}

func newSubscriber(h *hub, r route) *subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &subscriber{hub: h, route: r, ctx: ctx, cancel: cancel, topics: make(map[string]*topic), kick: make(chan struct{}, 1)}
}

// kickLocked notifies the writer of changed subscriptions.
func (ln *subscriber) kickLocked() {
	select {
	case ln.kick <- struct{}{}:
	default:
	}
}

// run maintains a connection until the hub is closed or there are no listeners.
func (ln *subscriber) run() {
	defer ln.cancel()
	pause := firstBackoff
	for {
		switch ln.connect() {
		case idle:
			return
		case served:
			pause = firstBackoff
		case failed:
			pause = min(2*pause, lastBackoff)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ln.ctx.Done():
			timer.Stop()
			return
		}
		if ln.route.sharded {
			ln.giveUp()
			return
		}
	}
}

// An ending is the way in which a connection ended.
type ending int

const (
	failed ending = iota // before anything was received
	served               // after something was received
	idle                 // because there are no listeners
)

// connect runs one connection until its end.
func (ln *subscriber) connect() ending {
	ln.restart()
	ctx, cancel := context.WithCancel(ln.ctx)
	c := &connection{line: ln, conn: ln.route.open(ctx), cancel: cancel}
	var parts sync.WaitGroup
	parts.Go(func() { c.write(ctx) })
	parts.Go(func() { c.read(ctx) })
	<-ctx.Done()
	c.conn.Close() // wakes the reader
	parts.Wait()
	switch {
	case c.idle.Load():
		return idle
	case c.heard.Load() > 0:
		return served
	}
	return failed
}

// restart clears the state of the previous connection.
func (ln *subscriber) restart() {
	ln.hub.mu.Lock()
	defer ln.hub.mu.Unlock()
	for name, tp := range ln.topics {
		tp.sent, tp.pending = false, 0
		tp.muteLocked()
		if len(tp.subscribers) == 0 {
			delete(ln.topics, name)
		}
	}
}

// changes returns the subscriptions to add and to remove.
func (ln *subscriber) changes() (join, leave []string) {
	ln.hub.mu.Lock()
	defer ln.hub.mu.Unlock()
	for name, tp := range ln.topics {
		switch {
		case len(tp.subscribers) > 0 && !tp.sent:
			tp.sent = true
			tp.pending++
			join = append(join, name)
		case len(tp.subscribers) == 0 && tp.sent:
			tp.sent = false
			tp.muteLocked()
			leave = append(leave, name)
		}
		if len(tp.subscribers) == 0 && tp.pending == 0 {
			delete(ln.topics, name)
		}
	}
	return join, leave
}

// retire removes the subscriber from its hub, unless it has listeners.
func (ln *subscriber) retire() bool {
	ln.hub.mu.Lock()
	defer ln.hub.mu.Unlock()
	if len(ln.topics) > 0 {
		return false
	}
	ln.removeLocked()
	return true
}

// giveUp removes the subscriber from its hub and makes its listeners subscribe again.
func (ln *subscriber) giveUp() {
	ln.hub.mu.Lock()
	defer ln.hub.mu.Unlock()
	ln.removeLocked()
	for _, tp := range ln.topics {
		tp.wakeLocked()
	}
}

func (ln *subscriber) removeLocked() {
	ln.cancel()
	delete(ln.hub.lines, ln.route.name)
}

// heard handles one message. It returns false if the server has ended a subscription that
// is still needed.
func (ln *subscriber) heard(message any) bool {
	ln.hub.mu.Lock()
	defer ln.hub.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if tp := ln.topics[m.Channel]; tp != nil {
			tp.wakeLocked()
		}
	case *redis.Subscription:
		tp := ln.topics[m.Channel]
		if tp == nil {
			return true
		}
		if m.Kind == "unsubscribe" || m.Kind == "sunsubscribe" {
			return !tp.sent || tp.pending > 0
		}
		tp.pending--
		if tp.pending == 0 && tp.sent {
			tp.heard = true
			tp.wakeLocked() // messages may have been missed before
			close(tp.ready) // last, so that a listener that waits only for this tries once, not twice
		}
		ln.kickLocked() // an unused topic can be removed
	}
	return true
}

// A connection is one network connection of a subscriber.
type connection struct {
	line   *subscriber
	conn   *redis.PubSub
	cancel context.CancelFunc
	heard  atomic.Int64
	idle   atomic.Bool
}

// read receives messages until the connection fails.
func (c *connection) read(ctx context.Context) {
	defer c.cancel()
	for ctx.Err() == nil {
		message, err := c.conn.Receive(ctx)
		if err != nil {
			return
		}
		c.heard.Add(1)
		if !c.line.heard(message) {
			return
		}
	}
}

// write sends all commands of the connection in order, and a PING to an idle server. It
// ends if there is no reply, or if there have been no listeners for a heartbeat.
func (c *connection) write(ctx context.Context) {
	defer c.cancel()
	tick := time.NewTicker(c.line.hub.heartbeat)
	defer tick.Stop()
	var before int64
	asked := false
	for {
		join, leave := c.line.changes()
		if c.unsubscribe(ctx, leave) != nil || c.subscribe(ctx, join) != nil {
			return
		}
		select {
		case <-c.line.kick:
		case <-ctx.Done():
			return
		case <-tick.C:
			if c.line.retire() {
				c.idle.Store(true)
				return
			}
			now := c.heard.Load()
			silent := now == before
			before = now
			if silent && asked || silent && c.conn.Ping(ctx) != nil {
				return
			}
			asked = silent
		}
	}
}

func (c *connection) subscribe(ctx context.Context, channels []string) error {
	if !c.line.route.sharded && len(channels) > 0 {
		return c.conn.Subscribe(ctx, channels...)
	}
	for _, channel := range channels { // one command takes the channels of one slot only
		if err := c.conn.SSubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) unsubscribe(ctx context.Context, channels []string) error {
	if !c.line.route.sharded && len(channels) > 0 {
		return c.conn.Unsubscribe(ctx, channels...)
	}
	for _, channel := range channels {
		if err := c.conn.SUnsubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}
