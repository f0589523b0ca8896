package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// saltInterval is the interval at which the common salt is refreshed: if Redis has lost it,
// it is stored again.
const saltInterval = time.Hour

// A salt is the salt for hashes in the log: that of all nodes that share a Redis, or a
// random one until they can be asked, or without a cluster.
type salt struct {
	client redis.UniversalClient // nil without a cluster
	prefix string
	now    atomic.Pointer[proxy.Salt]
}

func newSalt(s store) *salt {
	made := &salt{client: s.client, prefix: s.prefix}
	own := proxy.NewSalt()
	made.now.Store(&own)
	return made
}

// value returns the current salt.
func (s *salt) value() proxy.Salt { return *s.now.Load() }

// agree reads the common salt, and reports whether Redis was reachable.
func (s *salt) agree(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	agreed, err := cluster.Salt(ctx, s.client, s.prefix, s.value())
	if err != nil {
		return false
	}
	shared := proxy.Salt(agreed)
	s.now.Store(&shared)
	return true
}

// run refreshes the salt periodically until ctx is done.
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
