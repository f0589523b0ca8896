package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// reloadLockTimeout is how long a node waits for its turn to reload.
	reloadLockTimeout = 10 * time.Second
	// reloadLockLease is how long a turn may last: a node that dies in the middle of
	// its own does not keep the others waiting any longer.
	reloadLockLease = 5 * time.Second
)

var (
	// ErrAlone says that the other nodes could not be asked, because Redis
	// could not.
	ErrAlone = errors.New("cluster unavailable")
	// ErrBusy says that other nodes did not end their reload in time, or came
	// first while this one was held up in its own.
	ErrBusy = errors.New("another node is reloading")
	// ErrBehind says that the others have taken up another configuration while
	// this node could not ask Redis about its own.
	ErrBehind = errors.New("the other nodes have moved on")
)

// Assume notes what this node serves, and under which number, without anybody having been asked: what it
// has read at its start, while Redis is away.
func (n *Node) Assume(hash string, number int64) {
	n.serving.Store(&servedConfig{number: number, hash: hash, alone: true})
}

// Agree calls swap with the number of c, while no other node is between knowing
// such a number and serving it, and makes the limits of c the definitions in
// Redis. All nodes that take up one configuration get the same number, its
// generation, and every other configuration a higher one (compare and set).
//
// swap is called at most once. When Redis cannot be asked, it is called all the
// same, with the next number that this node would give, and the error wraps
// ErrAlone: an operator must be able to mend a configuration while Redis is away.
// When it is not this node's turn in time, or its turn is over before it has
// published, swap is not called, nothing is written, and the error wraps ErrBusy.
//
// Agreeing once more on what was taken up alone is how a node returns. If the
// others serve something newer then, nothing happens either and the error wraps
// ErrBehind.
func (n *Node) Agree(ctx context.Context, c *config.Config, swap func(number int64)) error {
	ctx, cancel := context.WithTimeout(ctx, reloadLockTimeout)
	defer cancel()
	hold, err := n.locker.Reentrant(n.prefix+"reload").Lock(ctx, lock.WithLease(reloadLockLease))
	if err != nil {
		if n.rdb.Ping(context.WithoutCancel(ctx)).Err() == nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return n.alone(c.Hash, swap, err)
	}
	defer hold.Unlock(context.WithoutCancel(ctx))

	_, err = n.Restore(hold.Context())
	var seen int64
	if err == nil {
		seen, err = n.seen(hold.Context(), c.Hash)
	}
	if err != nil {
		return n.alone(c.Hash, swap, err)
	}
	if hold.Context().Err() != nil {
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(hold.Context()))
	}
	number, err := n.numbered(hold.Context(), c, seen)
	switch {
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrBehind):
		return err
	case err != nil:
		return n.alone(c.Hash, swap, err)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: c.Hash, agreed: number, defines: defining(c)})
	offer(n.beatNow, struct{}{})
	return nil
}

// alone takes up a configuration without the others.
func (n *Node) alone(hash string, swap func(number int64), err error) error {
	now := n.serving.Load()
	number := max(now.number, 1) + 1
	if now.hash == "" || now.hash == hash {
		number = max(now.number, 1)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: hash, agreed: now.agreed, alone: true, defines: now.defines})
	return fmt.Errorf("%w: %w", ErrAlone, err)
}

// repeated reports whether a configuration with that hash is taken up for a
// second time, because Redis could not be asked the first time.
func (s *servedConfig) repeated(hash string) bool { return s.alone && s.hash == hash && s.agreed > 0 }

// seen is the number upon which a configuration with that hash is built: the
// one in Redis, for one that is new; the last one that was known of, for one
// that was taken up without Redis.
func (n *Node) seen(ctx context.Context, hash string) (int64, error) {
	if now := n.serving.Load(); now.repeated(hash) {
		return now.agreed, nil
	}
	return n.Number(ctx)
}

// numbered asks under which number a configuration is known, and makes it known
// under the next, with its limits, when it is not the one taken up last and seen
// still is the last number.
func (n *Node) numbered(ctx context.Context, c *config.Config, seen int64) (int64, error) {
	keys := []string{n.prefix + "config", n.prefix + "limits", n.prefix + "removed"}
	args := append([]any{c.Hash, n.id, seen, configTTL.Milliseconds(), n.source}, defining(c)...)
	reply, err := n.scripts.publish.Run(ctx, n.rdb, keys, args...).Int64Slice()
	if err != nil {
		return 0, fmt.Errorf("publish config: %w", err)
	}
	if len(reply) != 2 {
		return 0, fmt.Errorf("publish config: %w: %v", errReply, reply)
	}
	switch reply[0] {
	case 1:
		return reply[1], nil
	case 2:
		n.fallBehind()
		return 0, fmt.Errorf("%w: generation %d was pushed to all nodes; push this file, or write reload: {source: file}", ErrBehind, reply[1])
	}
	if n.serving.Load().repeated(c.Hash) {
		n.fallBehind()
		return 0, fmt.Errorf("%w: to generation %d, while this one knew of %d; its own file is served on until it changes", ErrBehind, reply[1], seen)
	}
	return 0, fmt.Errorf("%w: generation %d came before this one", ErrBusy, reply[1])
}

// fallBehind notes that the others serve something newer.
func (n *Node) fallBehind() {
	now := *n.serving.Load()
	now.behind = true
	n.serving.Store(&now)
}
