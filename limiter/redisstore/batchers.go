package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// batchers are two batchers for each node that takes writes, so that a slow node of a
// cluster holds up nobody else, and neither does a limiter that Redisson shares:
// those have a lane of their own.
type batchers struct {
	store       *Store
	maxInFlight int

	mu     sync.Mutex // guards what follows
	byNode map[track]*batcher
	closed bool
}

// A track is a node, and who travels there.
type track struct {
	node   string
	shared bool
}

// of is the lane to the node that keeps c.
func (l *batchers) of(ctx context.Context, c limiter.Claim) *batcher {
	node := ""
	if cluster, ok := l.store.client.(*redis.ClusterClient); ok {
		// Without an answer the call itself will say what is wrong.
		if master, err := cluster.MasterForKey(ctx, l.store.names.keys(c)[0]); err == nil {
			node = master.Options().Addr
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := track{node, c.Redisson != ""}
	found := l.byNode[at]
	if found == nil {
		found = &batcher{store: l.store, maxInFlight: l.maxInFlight, closed: l.closed}
		l.byNode[at] = found
	}
	return found
}

// remap has the client of a cluster ask, in the background, who keeps what: a call
// that is never sent again does not make it do so by itself.
func (s *Store) remap() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// close closes all lanes and waits for them.
func (l *batchers) close() {
	l.mu.Lock()
	l.closed = true
	all := make([]*batcher, 0, len(l.byNode))
	for _, lane := range l.byNode {
		all = append(all, lane)
	}
	l.mu.Unlock()
	for _, lane := range all {
		lane.close()
	}
}

// A part is the claims of a request that one script call can decide: one that
// names a limiter of Redisson's, and of the others those of one key in a cluster,
// all elsewhere.
type part struct {
	claims []limiter.Claim
	places []int // of the claims in the request
	limiter.Decision
}

// parts splits claims. The parts are sorted by key, so that two requests for the
// same keys come to them in the same order.
func (s *Store) parts(claims []limiter.Claim) []*part {
	var all []*part
	for i, c := range claims {
		at := slices.IndexFunc(all, func(p *part) bool { return s.home(p.claims[0]) == s.home(c) })
		if at < 0 {
			at = len(all)
			all = append(all, &part{})
		}
		all[at].claims = append(all[at].claims, c)
		all[at].places = append(all[at].places, i)
	}
	slices.SortFunc(all, func(a, b *part) int { return s.home(a.claims[0]).compare(s.home(b.claims[0])) })
	return all
}

// home is where c is decided, together with all that has the same.
func (s *Store) home(c limiter.Claim) slot {
	if !s.apart && c.Redisson == "" {
		return slot{}
	}
	return slotOf(c)
}

func (h slot) compare(other slot) int {
	return cmp.Or(cmp.Compare(h.redisson, other.redisson), bytes.Compare(h.key[:], other.key[:]))
}

// one reports whether claims make one part, without making it.
func (s *Store) one(claims []limiter.Claim) bool {
	return !slices.ContainsFunc(claims, func(c limiter.Claim) bool { return s.home(c) != s.home(claims[0]) })
}
