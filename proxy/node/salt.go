package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// saltInterval is the interval at which the salt is agreed on again, in case Redis has lost it.
const saltInterval = time.Hour

// A salt is the salt of hashes in this node's log: the one that all nodes of the cluster share, or
// a random one until Redis is reachable and without a cluster.
type salt struct {
	client  redis.UniversalClient // nil without a cluster
	prefix  string
	current atomic.Pointer[proxy.Salt]
}

func newSalt(s store) *salt {
	made := &salt{client: s.client, prefix: s.prefix}
	own := proxy.NewSalt()
	made.current.Store(&own)
	return made
}

// value returns the current salt.
func (s *salt) value() proxy.Salt { return *s.current.Load() }

// agree adopts the salt of the cluster. It reports whether Redis was reachable.
func (s *salt) agree(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	agreed, err := cluster.Salt(ctx, s.client, s.prefix, s.value())
	if err != nil {
		return false
	}
	shared := proxy.Salt(agreed)
	s.current.Store(&shared)
	return true
}

// run agrees on the salt at the start and at intervals, until ctx is done.
func (s *salt) run(ctx context.Context) {
	if s.client == nil {
		return
	}
	for {
		pause := connectTimeout
		if s.agree(ctx) {
			pause = saltInterval
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
