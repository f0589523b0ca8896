package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/lock"
)

const (
	// turnWithin is how long a node waits for its turn to reload.
	turnWithin = 10 * time.Second
	// turnLease is how long a turn may last: a node that dies in the middle of
	// its own does not keep the others waiting any longer.
	turnLease = 5 * time.Second
)

var (
	// ErrAlone says that the other nodes could not be asked, because Redis
	// could not.
	ErrAlone = errors.New("cluster unavailable")
	// ErrBusy says that other nodes did not end their reload in time.
	ErrBusy = errors.New("another node is reloading")
)

// Agree calls swap with the number of the configuration that has this hash,
// while no other node is between knowing such a number and serving it. All nodes
// that take up one configuration get the same number, and every other
// configuration a higher one.
//
// swap is called at most once. When Redis cannot be asked, it is called all the
// same, with the next number that this node would give, and the error wraps
// ErrAlone: an operator must be able to mend a configuration while Redis is away.
// When it is not this node's turn in time, swap is not called and the error
// wraps ErrBusy.
func (n *Node) Agree(ctx context.Context, hash string, swap func(number int64)) error {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	hold, err := n.locker.Reentrant(n.prefix+"reload").Lock(ctx, lock.WithLease(turnLease))
	if err != nil {
		if n.rdb.Ping(context.WithoutCancel(ctx)).Err() == nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return n.alone(swap, err)
	}
	defer hold.Unlock(context.WithoutCancel(ctx))

	number, err := n.numbered(hold.Context(), hash)
	if err != nil {
		return n.alone(swap, err)
	}
	n.number.Store(number)
	swap(number)
	return nil
}

// alone takes up a configuration without the others.
func (n *Node) alone(swap func(number int64), err error) error {
	swap(n.number.Add(1))
	return fmt.Errorf("%w: %w", ErrAlone, err)
}
