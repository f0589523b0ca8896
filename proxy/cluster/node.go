// Package cluster makes several proxies behave as one: each knows how many
// there are, and they take up a new configuration one after the other, all
// under the same number.
//
// In Redis it keeps, under PREFIX:{cluster}: a sorted set of live nodes with the
// time of their last sign of life, a hash that names the configuration taken up
// last, and a lock (package lock) that a reload holds.
package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
)

const (
	// every is how often a node gives a sign of life; after it is how long a
	// node that gives none still counts.
	every = 2 * time.Second
	after = 10 * time.Second
)

//go:embed beat.lua
var beatScript string

//go:embed publish.lua
var publishScript string

// A Node is this process among those that share its store. It is safe for
// concurrent use.
type Node struct {
	rdb     redis.UniversalClient
	prefix  string
	id      string
	locker  *lock.Locker
	beat    *redis.Script
	publish *redis.Script
	live    atomic.Int64 // how many there are, as far as was last heard
	number  atomic.Int64 // of the generation that this node took up last
}

// Join makes the Node of a process. Keys begin with prefix; id is unique among
// the nodes. Nothing is asked of Redis before Run or Agree.
func Join(rdb redis.UniversalClient, prefix, id string) *Node {
	n := &Node{
		rdb:     rdb,
		prefix:  prefix + ":{cluster}:",
		id:      id,
		locker:  lock.New(rdb),
		beat:    redis.NewScript(beatScript),
		publish: redis.NewScript(publishScript),
	}
	n.live.Store(1)
	n.number.Store(1)
	return n
}

// Live is how many nodes there are, this one counted: the number last heard,
// also while Redis is away, and 1 before anything was heard.
func (n *Node) Live() int { return int(n.live.Load()) }

// Run gives signs of life until ctx is done, and then leaves, so that the others
// need not wait to notice.
func (n *Node) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		n.sign(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			n.rdb.ZRem(ctx, n.prefix+"nodes", n.id) // or it is dropped after a while
			n.locker.Close()
			return
		}
	}
}

// sign gives one sign of life. When Redis does not answer, what was heard last
// still holds.
func (n *Node) sign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	live, err := n.beat.Run(ctx, n.rdb, []string{n.prefix + "nodes"}, n.id, after.Milliseconds()).Int64()
	if err == nil {
		n.live.Store(max(live, 1))
	}
}

// numbered asks under which number a configuration is known, and makes it known
// under the next when it is not the one taken up last.
func (n *Node) numbered(ctx context.Context, hash string) (int64, error) {
	number, err := n.publish.Run(ctx, n.rdb, []string{n.prefix + "config"}, hash, n.id).Int64()
	if err != nil {
		return 0, fmt.Errorf("publish config: %w", err)
	}
	return number, nil
}
