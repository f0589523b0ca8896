package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// errClient reports that a store was created with an unsupported client.
var errClient = errors.New("a client that is neither a *redis.Client nor a *redis.ClusterClient")

// pipelines has two pipelines for each master, one of them for limiters shared with
// Redisson. So neither a slow node of a cluster nor a slow shared limiter delays other
// calls.
type pipelines struct {
	store         *Store
	own, redisson atomic.Pointer[pipeline] // set if there is only one node

	mu     sync.Mutex // guards the fields below
	byNode map[pipelineKey]*pipeline
	closed bool
}

// A pipelineKey identifies a pipeline.
type pipelineKey struct {
	node     string
	redisson bool
}

func newPipelines(s *Store) *pipelines {
	return &pipelines{store: s, byNode: map[pipelineKey]*pipeline{}}
}

// forClaim returns the pipeline to the node that has the key of c.
func (l *pipelines) forClaim(ctx context.Context, c *limiter.Claim) (*pipeline, error) {
	only := &l.own
	if c.RedissonName != "" {
		only = &l.redisson
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

// forNode returns the pipeline to node, creating it if necessary.
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

// reloadCluster has the client of a cluster reload the slots in the background. The
// client itself only does this when it retries a call.
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
