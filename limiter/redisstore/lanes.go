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

// lanes are one lane for each node that takes writes, so that a slow node of a
// cluster holds up nobody else. A single Redis has one.
type lanes struct {
	store   *Store
	flights int

	mu     sync.Mutex // guards what follows
	byNode map[string]*lane
	closed bool
}

// of is the lane to the node that keeps c.
func (l *lanes) of(ctx context.Context, c limiter.Claim) *lane {
	node := ""
	if cluster, ok := l.store.client.(*redis.ClusterClient); ok {
		// Without an answer the call itself will say what is wrong.
		if master, err := cluster.MasterForKey(ctx, l.store.names.keys(c)[0]); err == nil {
			node = master.Options().Addr
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.byNode[node]
	if found == nil {
		found = &lane{store: l.store, flights: l.flights, closed: l.closed}
		l.byNode[node] = found
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
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	all := make([]*lane, 0, len(l.byNode))
	for _, lane := range l.byNode {
		all = append(all, lane)
	}
	l.mu.Unlock()
	for _, lane := range all {
		lane.close()
	}
}

// A part is the claims of a request that one script call can decide: those of
// one key in a cluster, all elsewhere.
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
		at := slices.IndexFunc(all, func(p *part) bool { return !s.apart || homeOf(p.claims[0]) == homeOf(c) })
		if at < 0 {
			at = len(all)
			all = append(all, &part{})
		}
		all[at].claims = append(all[at].claims, c)
		all[at].places = append(all[at].places, i)
	}
	slices.SortFunc(all, func(a, b *part) int { return homeOf(a.claims[0]).compare(homeOf(b.claims[0])) })
	return all
}

func (h home) compare(other home) int {
	return cmp.Or(cmp.Compare(h.redisson, other.redisson), bytes.Compare(h.key[:], other.key[:]))
}

// one reports whether claims make one part, without making it.
func (s *Store) one(claims []limiter.Claim) bool {
	return !s.apart || !slices.ContainsFunc(claims, func(c limiter.Claim) bool { return homeOf(c) != homeOf(claims[0]) })
}
