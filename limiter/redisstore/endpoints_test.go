package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A node that does not say at which host the others are means the host at which it was asked.
func TestCluster_UnknownEndpoints(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, 3)
	ctx := t.Context()
	for _, kind := range []string{"unknown-endpoint", "hostname"} { // no node has a hostname
		for _, s := range servers.Nodes {
			direct := redis.NewClient(&redis.Options{Addr: s.Addr})
			if err := direct.ConfigSet(ctx, "cluster-preferred-endpoint-type", kind).Err(); err != nil {
				t.Fatal(err)
			}
			direct.Close()
		}
		t.Run(kind, func(t *testing.T) {
			client := clientOf(t, redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: servers.Addrs()[1:2], Timeout: patient})
			store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
			s := &testStore{t: t, client: client, store: store}
			if _, err := store.Check(ctx); err != nil {
				t.Error(err)
			}
			for i := range 20 {
				c := claim(5, time.Hour, 1)
				c[0].Key = limiter.KeyOf(kind, fmt.Sprint(i))
				s.allowed(c, 3)
				s.left(c, 2)
			}
			followsMoved(t, servers.Nodes[0], client.(*redis.ClusterClient))
		})
	}
}

// followsMoved asks the wrong node, whose reply names the right one without its host: the client must dial that one
// at the host that it knows.
func followsMoved(t *testing.T, wrong *redistest.Server, client *redis.ClusterClient) {
	t.Helper()
	ctx := t.Context()
	stale := *client.Options()
	stale.Addrs = slices.Clone(stale.Addrs) // to which a client adds
	stale.ClusterSlots = func(ctx context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: wrong.Addr}}}}, nil
	}
	lost := redis.NewClusterClient(&stale)
	defer lost.Close()
	for i := range 20 {
		key := fmt.Sprint("moved", i)
		if err := lost.Set(ctx, key, i, time.Minute).Err(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
		if _, err := lost.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, key).Err() }); err != nil {
			t.Errorf("get %s: %v", key, err)
		}
	}
}
