package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// reloadLockTimeout is how long a node waits for the reload lock.
	reloadLockTimeout = 10 * time.Second
	// reloadLockLease is the lease of the reload lock: a node that dies during its
	// reload does not block the others for longer.
	reloadLockLease = 5 * time.Second
)

var (
	// ErrAlone reports that the other nodes could not be reached, because Redis
	// is unreachable.
	ErrAlone = errors.New("cluster unavailable")
	// ErrBusy reports that another node held the reload lock for too long, or
	// published first while this node was delayed.
	ErrBusy = errors.New("another node is reloading")
	// ErrBehind reports that the other nodes have loaded a newer configuration
	// while this node could not reach Redis.
	ErrBehind = errors.New("the other nodes serve a newer config")
)

// Assume sets the configuration that this node serves, and its number, without asking Redis: at a start
// while Redis is unreachable.
func (n *Node) Assume(hash string, number int64) {
	n.serving.Store(&servedConfig{number: number, hash: hash, withoutCluster: true})
}

// Agree assigns a number, the generation, to c and calls swap with it while
// this node holds the reload lock, and publishes the limits of c in Redis. All
// nodes that load the same configuration get the same number, and each other
// configuration a higher one (compare and set).
//
// swap is called at most once. If Redis is unreachable, or refuses writes, it is still called, with
// the next number that this node would assign, and the error wraps ErrAlone: an
// operator must be able to fix a configuration while Redis is down. If the lock
// cannot be acquired in time, or is lost before publishing, swap is not called,
// nothing is written, and the error wraps ErrBusy.
//
// After ErrAlone, a node calls Agree again when Redis is back. If the other
// nodes serve something newer by then, nothing is changed and the error wraps
// ErrBehind.
func (n *Node) Agree(ctx context.Context, c *config.Config, swap func(number int64)) error {
	ctx, cancel := context.WithTimeout(ctx, reloadLockTimeout)
	defer cancel()
	hold, err := n.locker.Reentrant(n.prefix+"reload").Lock(ctx, lock.WithLease(reloadLockLease))
	if err != nil {
		// refused is not by another node, but by Redis
		if _, refused := errors.AsType[redis.Error](err); !refused && n.rdb.Ping(context.WithoutCancel(ctx)).Err() == nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	defer hold.Unlock(context.WithoutCancel(ctx))

	_, err = n.Restore(hold.Context())
	var seen int64
	if err == nil {
		seen, err = n.expectedNumber(hold.Context(), c.Hash)
	}
	if err != nil {
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	if hold.Context().Err() != nil {
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(hold.Context()))
	}
	number, err := n.publish(hold.Context(), c, seen)
	switch {
	case errors.Is(err, ErrBusy) || errors.Is(err, ErrBehind):
		return err
	case err != nil:
		return n.loadWithoutCluster(c.Hash, swap, err)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: c.Hash, agreed: number, definitionArgs: definitionArgs(c)})
	trySend(n.heartbeatNow, struct{}{})
	return nil
}

// loadWithoutCluster loads a configuration without the other nodes.
func (n *Node) loadWithoutCluster(hash string, swap func(number int64), err error) error {
	now := n.serving.Load()
	number := max(now.number, 1) + 1
	if now.hash == "" || now.hash == hash {
		number = max(now.number, 1)
	}
	swap(number)
	n.serving.Store(&servedConfig{number: number, hash: hash, agreed: now.agreed, withoutCluster: true, definitionArgs: now.definitionArgs})
	return fmt.Errorf("%w: %w", ErrAlone, err)
}

// isRetry reports whether a configuration with that hash is loaded again
// because Redis was unreachable the first time.
func (s *servedConfig) isRetry(hash string) bool {
	return s.withoutCluster && s.hash == hash && s.agreed > 0
}

// expectedNumber returns the number that the compare and set expects: the one in Redis
// for a new configuration, the last known one for a configuration that was
// loaded without Redis.
func (n *Node) expectedNumber(ctx context.Context, hash string) (int64, error) {
	if now := n.serving.Load(); now.isRetry(hash) {
		return now.agreed, nil
	}
	return n.Number(ctx)
}

// publish returns the number of a configuration. If it is not the current one,
// and seen is still the current number, it is published with its limits under
// the next number.
func (n *Node) publish(ctx context.Context, c *config.Config, seen int64) (int64, error) {
	args := append([]any{c.Hash, n.options.ID, seen, configTTL.Milliseconds(), n.options.Source}, definitionArgs(c)...)
	reply, err := n.run(ctx, "publish", []string{"config", "limits", "removed"}, args...).Int64Slice()
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
		n.markBehind()
		return 0, fmt.Errorf("%w: generation %d was pushed to all nodes; push this file, or write reload: {source: file}", ErrBehind, reply[1])
	}
	if n.serving.Load().isRetry(c.Hash) {
		n.markBehind()
		return 0, fmt.Errorf("%w: to generation %d, while this one knew of %d; its own file is served on until it changes", ErrBehind, reply[1], seen)
	}
	return 0, fmt.Errorf("%w: generation %d was published first", ErrBusy, reply[1])
}

// markBehind records that the other nodes serve something newer.
func (n *Node) markBehind() {
	now := *n.serving.Load()
	now.isBehind = true
	n.serving.Store(&now)
}
