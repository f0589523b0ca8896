//go:build java

package redisson

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A Java unlock whose reply is lost has still let our waiter in, and whatever
// Java makes of it (it sends it again when there are replicas, and else gives up)
// does not disturb the new holder.
func TestFault_AnUnlockWhoseReplyIsLostLetsUsIn(t *testing.T) {
	w := newTestServer(t)
	p := redistest.NewFaultProxy(t, w.server.Addr)
	j := newJava(t, p.Addr)
	ours := w.locker().Reentrant("orders")
	j.do("locked", "ann", "reentrant.lock", "orders")
	j.do("unlocked", "ann", "reentrant.unlock", "orders") // the scripts are known now
	j.do("locked", "ann", "reentrant.lock", "orders")
	got := beside(t, ours)
	w.listens(1, "redisson_lock__channel:{orders}")
	p.Lose("redisson_lock__channel:{orders}")
	unlock := j.begin("ann", "reentrant.unlock", "orders")
	hold := got()
	t.Logf("java's unlock: %.100s", unlock.wait())
	if p.Lost() != 1 {
		t.Fatalf("%d replies were lost, want 1", p.Lost())
	}
	if n := w.eye.HGet(t.Context(), "orders", hold.Owner().String()).Val(); n != "1" {
		t.Errorf("our count is %q after Java's unlock, want 1", n)
	}
	unlocked(t, hold)
}

// After its connections were cut, Java's waiter is still served by our unlock.
func TestFault_AWaiterWhoseConnectionsWereCutIsServed(t *testing.T) {
	w := newTestServer(t)
	p := redistest.NewFaultProxy(t, w.server.Addr)
	j := newJava(t, p.Addr)
	hold := held(t, w.locker(lock.WithWatchdog(3*time.Second)).Reentrant("orders")) // renews, and does not listen
	before := w.refusals()
	waits := j.begin("ann", "reentrant.lock", "orders")
	w.listens(1, "redisson_lock__channel:{orders}")
	// Before it waits it tries once more, and gives up if that is cut off: no script is sent twice.
	await.Until(t, "java waits", func() bool { return w.refusals() >= before+2 })
	p.Cut()
	await.Until(t, "nobody listens any more", func() bool {
		return len(w.eye.PubSubChannels(t.Context(), "redisson_lock__channel:*").Val()) == 0
	})
	w.listens(1, "redisson_lock__channel:{orders}")
	unlocked(t, hold)
	waits.is("locked")
}

// refusals is how often a script has refused a lock, for which it asks how long that lasts.
func (t *testServer) refusals() int { return redistest.Commands(t.t, t.eye)["pttl"].Calls }

// In a cluster the channels are sharded where the servers can, and both sides
// find that out for themselves (Redisson since 3.22).
func TestCluster_LocksPassFromHandToHand(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	settings := []lock.LockerOption{lock.WithPollInterval(time.Hour)}
	if older(t) {
		settings = append(settings, lock.WithChannels(lock.PlainChannels))
	}
	l := lock.New(rdb, settings...)
	t.Cleanup(l.Close)
	j := startJava(t, "cluster", strings.Join(c.Addrs(), ","), 30*time.Second)
	for _, p := range pairs() {
		if p.young && older(t) {
			continue
		}
		ours := p.ours(l)
		j.do("locked", "ann", p.java+".lock", p.name)
		refused(t, ours)
		got := beside(t, ours)
		clusterListens(t, c, p.channel)
		j.do("unlocked", "ann", p.java+".unlock", p.name)
		hold := got()
		waits := j.begin("bob", p.java+".lock", p.name)
		if p.java != "multi" && p.java != "red" {
			clusterListens(t, c, p.channel)
		}
		waits.waits()
		unlocked(t, hold)
		waits.is("locked")
		j.do("unlocked", "bob", p.java+".unlock", p.name)
	}
}

// clusterListens waits until somebody has subscribed to a channel that begins
// so, sharded or not, at any node.
func clusterListens(t *testing.T, c *redistest.Cluster, channel string) {
	t.Helper()
	await.Until(t, "somebody listens to "+channel, func() bool {
		for _, addr := range c.Addrs() {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			plain := rdb.PubSubChannels(t.Context(), channel+"*").Val()
			sharded := rdb.PubSubShardChannels(t.Context(), channel+"*").Val()
			rdb.Close()
			if len(plain)+len(sharded) > 0 {
				return true
			}
		}
		return false
	})
}
