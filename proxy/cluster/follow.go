package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// prepareTimeout is how long a node may take to get ready.
	prepareTimeout = 10 * time.Second
	// retryAfterFailure is how long a node that could not serve what was pushed waits
	// before it tries again.
	retryAfterFailure = 30 * time.Second
)

// A Taken is a configuration that is ready to be served. Exactly one of Install and
// Discard is called, once.
type Taken interface {
	Config() *config.Config
	Install(number int64)
	Discard()
}

// A Follower does on a node what is pushed to all.
type Follower struct {
	// Take gets ready to serve what a bundle says. Its error is published to whoever
	// pushes.
	Take func(ctx context.Context, b config.Bundle) (Taken, error)
	// Told hears what came of each push that is decided: it is served, or why
	// it is not.
	Told func(e Entry, err error)

	ready    Taken  // for the push under way; nil when nothing is
	hash     string // of what is ready
	answered string // id of the push that was answered last
	refused  int64  // the generation that could not be served
	again    time.Time
}

// Adopt notes that this node serves what was pushed, which is c here.
func (n *Node) Adopt(e Entry, c *config.Config) {
	n.remember(e)
	n.pushed.Store(e.Generation)
	n.serving.Store(&servedConfig{number: e.Generation, hash: e.Hash, agreed: e.Generation, defines: defining(c)})
	offer(n.beatNow, struct{}{})
}

// Follow serves what is pushed, until ctx is done: at once when it is published to
// look, and within two seconds when it is not heard. Whatever was pushed while
// this node was away is served as soon as it is back.
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

// poll does what there is to do. When Redis does not answer, that is nothing.
func (n *Node) poll(ctx context.Context, f *Follower) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	pushed, under, err := n.pushState(ctx)
	if err != nil {
		return
	}
	// A lower number is that of a Redis that has lost what came later: see Restore.
	if pushed > n.pushed.Load() && !f.backsOff(pushed) {
		n.serve(ctx, f)
	}
	switch {
	case under == "":
		f.discard()
	case under != f.answered:
		n.answer(ctx, f, under)
	}
}

// pushState is the generation that was pushed last, or 0, and the id of the push
// that is under way, or nothing.
func (n *Node) pushState(ctx context.Context) (pushed int64, under string, err error) {
	pipe := n.rdb.Pipeline()
	number, id := pipe.HGet(ctx, n.prefix+"config", "pushed"), pipe.HGet(ctx, n.prefix+"push", "id")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return 0, "", fmt.Errorf("look for pushes: %w", err)
	}
	pushed, _ = number.Int64() // there may be none
	return pushed, id.Val(), nil
}

// serve serves what was pushed last.
func (n *Node) serve(ctx context.Context, f *Follower) {
	e, err := n.Pushed(ctx)
	if err != nil || e.Generation == 0 {
		return // heard of again at the next look
	}
	taken := f.ready
	if f.ready == nil || f.hash != e.Hash {
		f.discard()
		taken, err = f.Take(ctx, e.Bundle)
	}
	if err != nil {
		f.refused, f.again = e.Generation, time.Now().Add(retryAfterFailure)
		f.Told(e, err)
		return
	}
	f.ready = nil
	taken.Install(e.Generation)
	n.Adopt(e, taken.Config())
	f.Told(e, nil)
}

// answer gets ready for the push that is under way and says so, or why not.
func (n *Node) answer(ctx context.Context, f *Follower, id string) {
	values, err := n.rdb.HMGet(ctx, n.prefix+"push", "id", "bundle", "hash").Result()
	if err != nil || len(values) != 3 || values[0] != id {
		return // it is over
	}
	packed, _ := values[1].(string)
	f.discard()
	said := agreed
	b, err := unpackBundle([]byte(packed))
	if err == nil {
		f.ready, err = f.Take(ctx, b)
	}
	if err != nil {
		f.ready, said = nil, err.Error()
	}
	f.hash, f.answered = b.Hash(), id
	if err := n.scripts.answer.Run(ctx, n.rdb, []string{n.prefix + "push"}, id, n.id, said).Err(); err != nil {
		f.answered = "" // nobody has heard it
	}
}

// discard gives up what is ready and not wanted.
func (f *Follower) discard() {
	if f.ready != nil {
		f.ready.Discard()
	}
	f.ready = nil
}

// backsOff reports whether it is too early to try that generation again.
func (f *Follower) backsOff(number int64) bool {
	return f.refused == number && time.Now().Before(f.again)
}
