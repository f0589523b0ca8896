package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// waiter asks for l beside the test.
func waiter(t *testing.T, l lock.Lockable) chan *lock.Hold {
	got := make(chan *lock.Hold, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // it waits for a failover, and a busy machine elects slowly
	t.Cleanup(cancel)
	go func() {
		h, err := l.Lock(ctx)
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		got <- h
	}()
	return got
}

func sentinelProcess(t *testing.T, s *redistest.Sentinel, settings ...lock.LockerOption) *lock.Locker {
	t.Helper()
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.Name, SentinelAddrs: s.Addrs, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	l := lock.New(rdb, settings...)
	t.Cleanup(func() {
		l.Close()
		rdb.Close()
	})
	return l
}

func TestSentinel_AConfirmedLockSurvivesTheMaster(t *testing.T) {
	s := redistest.StartSentinel(t)
	holder, other := sentinelProcess(t, s), sentinelProcess(t, s)
	h := held(t, holder.Fenced("a"), lock.WithReplicas(1))
	got := waiter(t, other.Fenced("a"))
	before := eye(t, s.Master.Addr)
	// The waiter, and the holder, who has held it for a second: that it is taken away is said there.
	await.Until(t, "both listen", func() bool { return listeners(t, before, "redisson_lock__channel:{a}") == 2 })

	s.Master.Kill()
	s.Promoted(s.Replica.Addr)
	after := eye(t, s.Replica.Addr)
	if m := after.HGetAll(minute(t), "a").Val(); len(m) != 1 || m[h.Owner().String()] != "1" {
		t.Errorf("hash at the new master = %v, want the holder", m)
	}
	await.Until(t, "the hold can be extended at the new master", func() bool { return h.Extend(minute(t), time.Minute) == nil })
	await.Until(t, "both listen at the new master", func() bool { return listeners(t, after, "redisson_lock__channel:{a}") == 2 })
	released(t, h)
	next := <-got
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	released(t, next)
}

func TestReplicas_TooFewGiveTheLockBack(t *testing.T) {
	s, rdb := server(t)
	l := process(t, s.Addr, lock.WithCallTimeout(time.Second))
	for _, ask := range []func(context.Context, ...lock.LockOption) (*lock.Hold, error){l.Reentrant("a").Lock, l.Reentrant("a").TryLock} {
		if _, err := ask(minute(t), lock.WithReplicas(1)); !errors.Is(err, lock.ErrNotSynced) {
			t.Errorf("error = %v, want ErrNotSynced", err)
		}
		await.Until(t, "nothing is left", func() bool { return rdb.DBSize(minute(t)).Val() == 0 })
	}
}

func TestReplicas_ARefusalIsNoMatterOfReplicas(t *testing.T) {
	s, _ := server(t)
	l := process(t, s.Addr, lock.WithCallTimeout(time.Second))
	h := held(t, l.Reentrant("a"))
	if _, err := l.Reentrant("a").TryLock(minute(t), lock.WithReplicas(1)); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("error = %v, want ErrNotAcquired", err)
	}
	released(t, h)
}

// A replica that was cut off before the lock reached it is promoted: two hold
// the lock at once, as doc.go says. The old holder learns of it at its next
// renewal; a resource knows at once, by the token.
func TestFailover_OfAReplicaThatMissedTheLockIsALoss(t *testing.T) {
	master, _ := server(t)
	replica, rdb := server(t)
	proxy := redistest.NewFaultProxy(t, master.Addr)
	l := process(t, proxy.Addr, lock.WithWatchdog(3*time.Second), lock.WithCallTimeout(time.Second))
	h := held(t, l.Fenced("a"))
	proxy.Redirect(replica.Addr) // the name of the master now means another server
	next := held(t, process(t, replica.Addr).Fenced("a"))
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d: a resource cannot tell who is late", next.Token(), h.Token())
	}
	ended(t, h)
	if got := context.Cause(h.Context()); got != lock.ErrLost {
		t.Errorf("cause = %v, want ErrLost", got)
	}
	if m := rdb.HGetAll(minute(t), "a").Val(); m[next.Owner().String()] != "1" {
		t.Errorf("hash = %v, want the new holder untouched", m)
	}
	released(t, next)
}

func listeners(t *testing.T, rdb *redis.Client, channel string) int64 {
	return rdb.PubSubNumSub(minute(t), channel).Val()[channel]
}

func clusterProcess(t *testing.T, c *redistest.Cluster, settings ...lock.LockerOption) *lock.Locker {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	l := lock.New(rdb, settings...)
	t.Cleanup(func() {
		l.Close()
		rdb.Close()
	})
	return l
}

// shardListeners is how many listen to a sharded channel at the master of its slot.
func shardListeners(t *testing.T, c *redistest.Cluster, channel string) int64 {
	rdb := client(master(t, c, channel).Addr)
	defer rdb.Close()
	return rdb.PubSubShardNumSub(minute(t), channel).Val()[channel]
}

// master is the server that owns the slot of key now, as a living node sees it.
func master(t *testing.T, c *redistest.Cluster, key string) *redistest.Server {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}) // asks one that answers
	defer rdb.Close()
	if owner, err := rdb.MasterForKey(minute(t), key); err == nil {
		for _, node := range c.Nodes {
			if node.Addr == owner.Options().Addr {
				return node
			}
		}
	}
	t.Fatalf("no living node knows a master for %s", key)
	return nil
}

func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	one, two := clusterProcess(t, c), clusterProcess(t, c, lock.WithPollInterval(5*time.Second))

	t.Run("all kinds hand over by sharded channels", func(t *testing.T) { handOver(t, c, one, two) })
	t.Run("plain channels reach every node", func(t *testing.T) { reachEveryNode(t, c) })
	t.Run("fair", func(t *testing.T) {
		h := held(t, one.Fair("a"))
		got := waiter(t, two.Fair("a"))
		await.Until(t, "one waits", func() bool {
			rdb := client(master(t, c, "a").Addr)
			defer rdb.Close()
			return rdb.LLen(minute(t), "redisson_lock_queue:{a}").Val() == 1
		})
		released(t, h)
		released(t, <-got)
	})

	t.Run("semaphore and latch", func(t *testing.T) {
		s, p, latch := one.Semaphore("s"), one.ExpirableSemaphore("p"), one.Latch("l")
		for _, set := range []func(context.Context, int64) (bool, error){s.TrySetPermits, p.TrySetPermits, latch.TrySetCount} {
			if ok, err := set(minute(t), 1); err != nil || !ok {
				t.Fatalf("set = %v, %v", ok, err)
			}
		}
		if err := errors.Join(s.Acquire(minute(t), 1), s.Release(minute(t), 1), latch.CountDown(minute(t)), two.Latch("l").Await(minute(t))); err != nil {
			t.Error(err)
		}
		released(t, held(t, p))
		if _, err := one.Latch("{x}y").TrySetCount(minute(t), 1); !errors.Is(err, lock.ErrInvalidName) {
			t.Errorf("a latch with a tag: %v, want ErrInvalidName", err)
		}
	})

	t.Run("a master dies", func(t *testing.T) {
		h := held(t, one.Fenced("a"), lock.WithReplicas(1))
		got := waiter(t, two.Fenced("a"))
		const channel = "redisson_lock__channel:{a}"
		await.Until(t, "the waiter listens", func() bool { return shardListeners(t, c, channel) >= 1 })
		old := master(t, c, "a")
		old.Kill()
		await.Until(t, "another master", func() bool { return master(t, c, "a") != old })
		await.Until(t, "the hold can be extended at the new master", func() bool { return h.Extend(minute(t), time.Minute) == nil })
		await.Until(t, "the waiter and the holder, which has held for more than a second, listen at the new master", func() bool { return shardListeners(t, c, channel) == 2 })
		released(t, h)
		next := <-got
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		released(t, next)
	})
}

func handOver(t *testing.T, c *redistest.Cluster, one, two *lock.Locker) {
	for _, k := range []struct {
		channel  string
		one, two lock.Lockable
	}{
		{"redisson_lock__channel:{a}", one.Reentrant("a"), two.Reentrant("a")},
		{"redisson_lock__channel:{b}", one.Fenced("b"), two.Fenced("b")},
		{"redisson_rwlock:{c}", one.ReadWrite("c").Write(), two.ReadWrite("c").Read()},
		{"weir_simple:{d}", one.Simple("d"), two.Simple("d")},
		{"redisson_lock__channel:{g}", one.Group("g", "x", "y"), two.Group("g", "y", "z")},
		{"redisson_lock__channel:{e}", lock.Multi(one.Reentrant("e"), one.Reentrant("f")), lock.Multi(two.Reentrant("f"), two.Reentrant("e"))},
		{"redisson_lock__channel:h{tag}", lock.Multi(one.Reentrant("{tag}i"), one.Reentrant("h{tag}")), lock.Multi(two.Reentrant("h{tag}"), two.Reentrant("{tag}i"))},
	} {
		h := held(t, k.one, lock.WithReplicas(1))
		got := waiter(t, k.two)
		await.Until(t, "the waiter listens to "+k.channel, func() bool { return shardListeners(t, c, k.channel) >= 1 })
		released(t, h)
		released(t, <-got)
		await.Until(t, "nobody listens to "+k.channel, func() bool { return shardListeners(t, c, k.channel) == 0 })
	}
}

func reachEveryNode(t *testing.T, c *redistest.Cluster) {
	one := clusterProcess(t, c, lock.WithChannels(lock.PlainChannels))
	two := clusterProcess(t, c, lock.WithChannels(lock.PlainChannels), lock.WithPollInterval(time.Hour))
	h := held(t, one.Reentrant("g"))
	got := waiter(t, two.Reentrant("g"))
	const channel = "redisson_lock__channel:{g}"
	await.Until(t, "the waiter listens at some node", func() bool {
		for _, node := range c.Nodes {
			rdb := client(node.Addr)
			n := listeners(t, rdb, channel)
			rdb.Close()
			if n == 1 {
				return true
			}
		}
		return false
	})
	released(t, h)
	released(t, <-got)
}
