package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// saltInterval is how often the nodes are asked about the salt, once they have agreed:
// one that has lost it, with its Redis, is told again.
const saltInterval = time.Hour

// A salt is what hashes in this weir's log are made with: that of all nodes that share
// a Redis, and one of its own until they could be asked, or if it shares nothing.
type salt struct {
	client redis.UniversalClient // nil: nothing is shared
	prefix string
	now    atomic.Pointer[proxy.Salt]
}

func newSalt(s store) *salt {
	made := &salt{client: s.client, prefix: s.prefix}
	own := proxy.NewSalt()
	made.now.Store(&own)
	return made
}

// value is what hashes are made with now.
func (s *salt) value() proxy.Salt { return *s.now.Load() }

// agree takes up the salt of all nodes, and reports whether they could be asked.
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

// run agrees with the other nodes, at the start and from time to time, until ctx is
// done.
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
