package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingInterval is the time without a message after which a PING is sent. The reply
	// must arrive within the same time.
	pingInterval = 3 * time.Second
	// resubscribePause is the time between two attempts to subscribe.
	resubscribePause = 250 * time.Millisecond
)

// invalidations receives, over one subscription, messages about windows in which permits
// became available: by a refund, a grant, a reset or the end of a ban in any process. It
// tells refusals whether the subscription is up.
type invalidations struct {
	client   redis.UniversalClient
	names    names
	refusals *refusalCache
	changes  *changes
	cancel   context.CancelFunc
	done     chan struct{}
}

// invalidationChannel returns the channel on which scripts publish.
func invalidationChannel(prefix string) string { return prefix + ":freed" }

// previousChannel returns the channel on which processes of earlier versions publish.
func previousChannel(prefix string) string { return prefix + ":room" }

// newInvalidations subscribes in the background.
func newInvalidations(client redis.UniversalClient, own names, n *refusalCache, c *changes) *invalidations {
	ctx, cancel := context.WithCancel(context.Background())
	l := &invalidations{client: client, names: own, refusals: n, changes: c, cancel: cancel, done: make(chan struct{})}
	go l.run(ctx)
	return l
}

// close ends the subscription and waits for its goroutine.
func (i *invalidations) close() {
	i.cancel()
	<-i.done
}

// run subscribes, and resubscribes after errors, until it or the client is closed.
func (i *invalidations) run(ctx context.Context) {
	defer close(i.done)
	for {
		err := i.receive(ctx)
		i.refusals.setSubscribed(false)
		if errors.Is(err, redis.ErrClosed) || pause(ctx, resubscribePause) != nil {
			return
		}
	}
}

// receive handles messages until the subscription fails.
func (i *invalidations) receive(ctx context.Context) error {
	sub := i.client.Subscribe(ctx, previousChannel(i.names.prefix), invalidationChannel(i.names.prefix))
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	pinged := false
	for ctx.Err() == nil {
		message, err := sub.ReceiveTimeout(ctx, pingInterval)
		var timeout net.Error
		switch {
		case err != nil && errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		pinged = false
		switch m := message.(type) {
		case *redis.Subscription:
			i.refusals.setSubscribed(m.Count == 2) // the client subscribes to them again in any order
		case *redis.Message:
			i.handle(m.Payload)
		}
	}
	return ctx.Err()
}

// handle handles a message. It invalidates the windows that the message names, one on a line, or all
// windows if a line names none. The first line of several is empty: processes of versions that know
// one window in a message invalidate all. A message may also be a change announced by another process.
func (i *invalidations) handle(message string) {
	if i.changes.handle(message) {
		return
	}
	for line := range strings.SplitSeq(strings.TrimPrefix(message, "\n"), "\n") {
		id, ok := i.names.parseWindow(line)
		if !ok {
			i.refusals.setSubscribed(true)
			return
		}
		i.refusals.invalidate(id)
	}
}
