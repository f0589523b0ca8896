package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// errClient reports that a store was made with a client of an unknown kind.
var errClient = errors.New("a client that is neither a *redis.Client nor a *redis.ClusterClient")

// pipelines are two pipelines for each node that takes writes, so that a slow node of a
// cluster holds up nobody else, and neither does a limiter that Redisson shares:
// those have pipelines of their own.
type pipelines struct {
	store       *Store
	own, shared atomic.Pointer[pipeline] // where there is one node

	mu     sync.Mutex // guards what follows
	byNode map[pipelineKey]*pipeline
	closed bool
}

// A pipelineKey is a node, and who travels there.
type pipelineKey struct {
	node   string
	shared bool
}

func newPipelines(s *Store) *pipelines {
	return &pipelines{store: s, byNode: map[pipelineKey]*pipeline{}}
}

// forClaim is the pipeline to the node that keeps c.
func (l *pipelines) forClaim(ctx context.Context, c *limiter.Claim) (*pipeline, error) {
	only := &l.own
	if c.RedissonName != "" {
		only = &l.shared
	}
	if p := only.Load(); p != nil {
		return p, nil
	}
	switch client := l.store.client.(type) {
	case *redis.Client:
		p := l.forNode(client, pipelineKey{"", c.RedissonName != ""})
		only.Store(p)
		return p, nil
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, string(l.store.names.append(nil, c, 0)))
		if err != nil {
			return nil, err
		}
		return l.forNode(node, pipelineKey{node.Options().Addr, c.RedissonName != ""}), nil
	}
	return nil, errClient
}

// forNode is the pipeline of that track, which is to node.
func (l *pipelines) forNode(node *redis.Client, at pipelineKey) *pipeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.byNode[at]
	if p == nil {
		p = newPipeline(l.store, node, at)
		p.queue.closed = l.closed
		l.byNode[at] = p
	}
	return p
}

// reloadCluster has the client of a cluster ask, in the background, who keeps what: a call
// that is never sent again does not make it do so by itself.
func (s *Store) reloadCluster() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// close closes all pipelines and waits for them.
func (l *pipelines) close() {
	l.mu.Lock()
	l.closed = true
	all := make([]*pipeline, 0, len(l.byNode))
	for _, p := range l.byNode {
		all = append(all, p)
	}
	l.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}
