package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingInterval is how long the listener lets pass before it asks whether the
	// connection still stands. An answer is due in the same time.
	pingInterval = 3 * time.Second
	// resubscribePause is between two attempts to subscribe.
	resubscribePause = 250 * time.Millisecond
)

// An invalidations hears, over one subscription, which windows got room: by a refund, a
// grant, a reset or the end of a ban, on whatever proxy. It tells denials whether
// it hears at all.
type invalidations struct {
	client  redis.UniversalClient
	names   names
	denials *denials
	changes *changes
	cancel  context.CancelFunc
	done    chan struct{}
}

// invalidationChannel is where scripts publish.
func invalidationChannel(prefix string) string { return prefix + ":room" }

func newInvalidations(client redis.UniversalClient, own names, n *denials, c *changes) *invalidations {
	ctx, cancel := context.WithCancel(context.Background())
	l := &invalidations{client: client, names: own, denials: n, changes: c, cancel: cancel, done: make(chan struct{})}
	go l.run(ctx)
	return l
}

// close ends the listener and waits for its end.
func (l *invalidations) close() {
	l.cancel()
	<-l.done
}

// run subscribes again and again until it is closed, or the client is.
func (l *invalidations) run(ctx context.Context) {
	defer close(l.done)
	for {
		err := l.receive(ctx)
		l.denials.setSubscribed(false)
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resubscribePause):
		}
	}
}

// receive listens until the subscription breaks.
func (l *invalidations) receive(ctx context.Context) error {
	sub := l.client.Subscribe(ctx, invalidationChannel(l.names.prefix))
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	asked := false
	for ctx.Err() == nil {
		message, err := sub.ReceiveTimeout(ctx, pingInterval)
		var timeout net.Error
		switch {
		case err != nil && errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		asked = false
		switch m := message.(type) {
		case *redis.Subscription:
			l.denials.setSubscribed(true)
		case *redis.Message:
			l.handle(m.Payload)
		}
	}
	return ctx.Err()
}

// handle forgets the window that a message names, or all if it names none; a message
// may also be a change that another proxy has made.
func (l *invalidations) handle(message string) {
	if l.changes.handle(message) {
		return
	}
	if id, ok := l.names.parseWindow(message); ok {
		l.denials.invalidate(id)
		return
	}
	l.denials.setSubscribed(true)
}
