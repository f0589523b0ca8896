package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

const (
	// prepareTimeout bounds the preparation of a pushed configuration on a
	// node.
	prepareTimeout = 10 * time.Second
	// retryAfterFailure is the pause before a node retries a pushed configuration
	// that it could not serve.
	retryAfterFailure = 30 * time.Second
)

// A Prepared is a prepared configuration. Exactly one of Install and Discard is
// called, once.
type Prepared interface {
	Config() *config.Config
	Install(number int64)
	Discard()
}

// A Follower applies pushes on a node.
type Follower struct {
	// Prepare prepares a bundle to be served. Its error is reported to the node that
	// pushes.
	Prepare func(ctx context.Context, b bundle.Bundle) (Prepared, error)
	// Applied is called with the result of each committed push: err is nil if it
	// is served.
	Applied func(e Entry, err error)

	prepared         Prepared // for the push in progress; nil if none
	preparedHash     string   // of ready
	answeredID       string   // id of the push that was answered last
	failedGeneration int64    // the generation that could not be served
	retryAt          time.Time
}

// Adopt records that this node serves the pushed entry e; c is its
// configuration on this node.
func (n *Node) Adopt(e Entry, c *config.Config) {
	n.prependHistory(e)
	n.pushed.Store(e.Generation)
	n.serving.Store(&servedConfig{number: e.Generation, hash: e.Hash, agreed: e.Generation, definitionArgs: definitionArgs(c)})
	trySend(n.heartbeatNow, struct{}{})
}

// Follow serves pushed configurations until ctx is done: at once after a
// notification, and within two seconds if the notification is lost. A push that
// was made while this node was partitioned is served as soon as it reconnects.
func (n *Node) Follow(ctx context.Context, f *Follower) {
	published := n.rdb.Subscribe(ctx, n.channel())
	defer published.Close()
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	defer f.discard()
	for {
		n.poll(ctx, f)
		select {
		case <-published.Channel():
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// poll handles the push in progress and the latest committed push. It does
// nothing if Redis does not answer.
func (n *Node) poll(ctx context.Context, f *Follower) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	pushed, under, err := n.pushState(ctx)
	if err != nil {
		return
	}
	// A lower number means that Redis has lost later pushes: see Restore.
	isEarly := f.failedGeneration == pushed && time.Now().Before(f.retryAt) // to retry it
	if pushed > n.pushed.Load() && !isEarly {
		n.serve(ctx, f)
	}
	switch {
	case under == "":
		f.discard()
	case under != f.answeredID:
		n.answer(ctx, f, under)
	}
}

// pushState returns the generation of the latest push, or 0, and the id of the
// push in progress, or "".
func (n *Node) pushState(ctx context.Context) (pushed int64, under string, err error) {
	pipe := n.rdb.Pipeline()
	number, id := pipe.HGet(ctx, n.prefix+"config", "pushed"), pipe.HGet(ctx, n.prefix+"push", "id")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return 0, "", fmt.Errorf("look for pushes: %w", err)
	}
	pushed, _ = number.Int64() // may be absent
	return pushed, id.Val(), nil
}

// serve serves the latest push.
func (n *Node) serve(ctx context.Context, f *Follower) {
	e, err := n.Pushed(ctx)
	if err != nil || e.Generation == 0 {
		return // found again by the next poll
	}
	taken := f.prepared
	if f.prepared == nil || f.preparedHash != e.Hash {
		f.discard()
		if err = e.Unreadable; err == nil {
			taken, err = f.Prepare(ctx, e.Bundle)
		}
	}
	if err != nil {
		f.failedGeneration, f.retryAt = e.Generation, time.Now().Add(retryAfterFailure)
		n.markUnreadable(e)
		f.Applied(e, err)
		return
	}
	f.prepared = nil
	taken.Install(e.Generation)
	n.Adopt(e, taken.Config())
	f.Applied(e, nil)
}

// markUnreadable lets the other nodes know that this one cannot read e.
func (n *Node) markUnreadable(e Entry) {
	if e.Unreadable == nil {
		return
	}
	now := *n.serving.Load()
	what, _, _ := strings.Cut(e.Unreadable.Error(), "; ")
	now.problem = fmt.Sprintf("cannot read generation %d: %s", e.Generation, what)
	n.serving.Store(&now)
	trySend(n.heartbeatNow, struct{}{})
}

// answer prepares for the push in progress and publishes the result.
func (n *Node) answer(ctx context.Context, f *Follower, id string) {
	values, err := n.rdb.HMGet(ctx, n.prefix+"push", "id", "bundle", "hash").Result()
	if err != nil || len(values) != 3 || values[0] != id {
		return // the push has ended
	}
	packed, _ := values[1].(string)
	hash, _ := values[2].(string)
	f.discard()
	said := agreed
	b, err := n.options.Seal.Open([]byte(packed), hash)
	if err == nil {
		f.prepared, err = f.Prepare(ctx, b)
	}
	if err != nil {
		f.prepared, said = nil, err.Error()
	}
	f.preparedHash, f.answeredID = hash, id
	if err := n.run(ctx, "answer", []string{"push"}, id, n.options.ID, said).Err(); err != nil {
		f.answeredID = "" // it was not delivered
	}
}

// discard discards the prepared configuration.
func (f *Follower) discard() {
	if f.prepared != nil {
		f.prepared.Discard()
	}
	f.prepared = nil
}
