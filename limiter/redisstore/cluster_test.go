package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A clocked store tells every slot the time before it asks.
type clocked struct {
	*redisstore.Store
	client redis.UniversalClient

	mu   sync.Mutex // guards what follows, and writing it to Redis
	now  int64
	told map[limiter.Key]int64
}

func (c *clocked) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d.Milliseconds()
}

func (c *clocked) tell(ctx context.Context, claims []limiter.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.client.Pipeline()
	for _, claim := range claims {
		for _, k := range []limiter.Key{claim.Key, claim.Value} { // what is noted lies under the value
			if c.told[k] != c.now {
				c.told[k] = c.now
				p.Set(ctx, redisstore.SlotClock(k), c.now, 0)
			}
		}
	}
	if p.Len() > 0 {
		_, _ = p.Exec(ctx)
	}
}

func (c *clocked) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	c.tell(ctx, claims)
	return c.Store.Take(ctx, claims, d)
}

func (c *clocked) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	c.tell(ctx, claims)
	c.awaitRefunds()
	return c.Store.Peek(ctx, claims, d)
}

// awaitRefunds waits until what refused requests had taken is given back.
func (c *clocked) awaitRefunds() {
	for c.Flying() > 0 {
		runtime.Gosched()
	}
}

func (c *clocked) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	c.tell(ctx, claims)
	c.awaitRefunds()
	return c.Store.Inspect(ctx, claims)
}

func (c *clocked) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	c.tell(ctx, claims)
	return c.Store.Refund(ctx, claims, p)
}

// Return tells all slots the time: only the note knows whose permits come back.
func (c *clocked) Return(ctx context.Context, limits []*limiter.Limit, subject limiter.Key) (int, error) {
	var claims []limiter.Claim
	c.mu.Lock()
	for k := range c.told {
		claims = append(claims, limiter.Claim{Key: k})
	}
	c.mu.Unlock()
	c.tell(ctx, append(claims, limiter.Claim{Key: subject}))
	return c.Store.Return(ctx, limits, subject)
}

func (c *clocked) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	c.tell(ctx, claims)
	return c.Store.Renew(ctx, claims, p)
}

func (c *clocked) Charge(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	c.tell(ctx, claims)
	return c.Store.Charge(ctx, claims, p)
}

func (c *clocked) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	c.tell(ctx, claims)
	return c.Store.Ban(ctx, claims, d)
}

// clusterClient is for a cluster that answers slowly while its nodes die.
func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	client := clientOf(t, redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: c.Addrs(), Timeout: patient})
	return client.(*redis.ClusterClient)
}

func TestStore_OnACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	client := clusterClient(t, servers)
	one := redisstore.NewWithSlotClock(client, redisstore.Options{Timeout: patient})
	t.Cleanup(func() { one.Close() })
	t.Run("KeepsTheContract", func(t *testing.T) {
		limitertest.Run(t, func(*testing.T) limitertest.Subject {
			store := &clocked{Store: one, client: client, now: 1_800_000_000_000, told: map[limiter.Key]int64{}}
			return limitertest.Subject{
				Store: store, Advance: store.advance, PerKeyTime: true,
				Schedules: rounds.Of(5), Steps: 16, ConcurrentKeys: 20, Calls: rounds.Of(500),
			}
		})
	})
	t.Run("KeepsTheContractOfConversion", func(t *testing.T) {
		limitertest.RunConversion(t, func(t *testing.T) limitertest.Subject {
			store := &clocked{Store: one, client: client, now: 1_800_000_000_000, told: map[limiter.Key]int64{}}
			return limitertest.Subject{Store: store, Advance: store.advance, Steps: rounds.Of(4), MinWindow: patient, PerKeyTime: true}
		})
	})
	store := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	t.Run("Check", func(t *testing.T) {
		if _, err := store.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("ManyKeysTogether", func(t *testing.T) { manyKeysTogether(t, client, store) })
	t.Run("DiesBetweenReserveAndCancel", func(t *testing.T) { diesBetween(t, servers, &clocked{Store: one, client: client}) })
	t.Run("SlotsMove", func(t *testing.T) { slotsMove(t, client, store) })
	t.Run("WritesWhileSlotsMove", func(t *testing.T) { writesWhileSlotsMove(t, client, one) })
	t.Run("SeveralSlotsInOneCall", func(t *testing.T) { severalSlotsInOneCall(t, client) })
	t.Run("SeveralRefundsInOneCall", func(t *testing.T) { severalRefundsInOneCall(t, client) })
	t.Run("SlotsHalfMoved", func(t *testing.T) { slotsHalfMoved(t, client, store) })
	t.Run("InvalidationsAreHeardOf", func(t *testing.T) {
		s := &testStore{t: t, client: client}
		near, far := s.hearing(), s.hearing()
		c := claim(1, time.Hour, 1)
		c[0].Key = limiter.KeyOf("denied")
		decide(t, near, c...)
		decide(t, near, c...)
		decide(t, far, c...)
		s.check(near.Reset(t.Context(), c))
		s.until("the reset is heard of", func() bool { return decide(t, far, c...).Allowed })
	})
	t.Run("KeysMoveFromOneRedis", func(t *testing.T) { keysMove(t, servers) })
	t.Run("OneNodeHangs", func(t *testing.T) { oneNodeHangs(t, servers, client, store) })
}

// What the client of a cluster gathers from several masters, and what it does in one step on one, is as with go-redis alone.
func TestNewClient_GathersFromACluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.StartMasters(t, 3))
	for i := range 20 {
		client.Set(t.Context(), fmt.Sprint("k", i), "v", time.Minute)
	}
	if size := client.DBSize(t.Context()); size.Val() != 20 {
		t.Errorf("%v; want 20", size)
	}
	err := client.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error {
		_, err := n.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() })
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A master dies: its replica takes over, and takes go on.
func TestStore_OnAClusterWhoseMasterDies(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, 3)
	store := storeOn(t, clusterClient(t, servers), redisstore.Options{Timeout: patient, CachedRefusals: -1})
	of := func(name string, i int) []limiter.Claim {
		c := claim(3, time.Hour, 1)
		c[0].Key = limiter.KeyOf(fmt.Sprint(name, i))
		return c
	}
	for i := range 20 {
		decide(t, store, of("before", i)...)
	}
	servers.Nodes[0].Kill()
	for i := range 60 {
		c := of("after", i)
		var d limiter.Decision
		eventually(t, fmt.Sprint("a take of key ", i), func() bool { return store.Take(t.Context(), c, &d) == nil })
		if !d.Allowed {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
}

// manyKeysTogether: callers of keys on all nodes are each decided rightly, also
// when no node knows the script any more.
func manyKeysTogether(t *testing.T, client *redis.ClusterClient, store *redisstore.Store) {
	if err := client.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error { return n.ScriptFlush(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := map[limiter.Key]int{}
	for caller := range 64 {
		wg.Go(func() {
			for i := range 30 {
				c := claim(20, time.Hour, 1)
				c[0].Key = limiter.KeyOf("many", strconv.Itoa((caller+i)%50))
				if decide(t, store, c...).Allowed {
					mu.Lock()
					granted[c[0].Key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for k, n := range granted {
		if n != 20 {
			t.Errorf("%v was granted %d times, want 20", k, n)
		}
	}
	if len(granted) != 50 {
		t.Errorf("%d keys", len(granted))
	}
}

// slotsMove: a key that moves to another node is asked for there, and what was
// taken is still taken.
func slotsMove(t *testing.T, client *redis.ClusterClient, store *redisstore.Store) {
	c := claim(50, time.Hour, 1)
	c[0].Key = limiter.KeyOf("moves")
	for range 30 {
		decide(t, store, c...)
	}
	m := startMove(t, client, name(c)+":value")
	if !decide(t, store, c...).Allowed {
		t.Error("refused while the slot begins to move")
	}
	m.carry(name(c)+":value", name(c)+":permits", name(c)+":base")
	if !decide(t, store, c...).Allowed { // ASK
		t.Error("refused while the slot moves")
	}
	m.finish()
	var d limiter.Decision
	for i := range 18 { // MOVED
		if d = decide(t, store, c...); !d.Allowed {
			t.Fatalf("take %d after the move: %+v", i, d)
		}
	}
	if d.Outcomes[0].Remaining != 0 || decide(t, store, c...).Allowed {
		t.Errorf("%+v after 50 of 50", d)
	}
}

// oneNodeHangs: keys of the other nodes are decided as quickly as ever.
func oneNodeHangs(t *testing.T, servers *redistest.Cluster, client *redis.ClusterClient, store *redisstore.Store) {
	hung := servers.Nodes[1]
	var here, elsewhere []limiter.Claim
	for i := 0; len(here) == 0 || len(elsewhere) == 0; i++ {
		c := claim(1000, time.Hour, 1)
		c[0].Key = limiter.KeyOf("hangs", strconv.Itoa(i))
		node, err := client.MasterForKey(t.Context(), name(c)+":value")
		if err != nil {
			t.Fatal(err)
		}
		if node.Options().Addr == hung.Addr {
			here = c
		} else {
			elsewhere = c
		}
	}
	decide(t, store, elsewhere...)
	hung.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 { // more than may be under way to one node
		wg.Go(func() {
			var d limiter.Decision
			_ = store.Take(ctx, here, &d) // until its node goes on, or we leave
		})
	}
	for range 20 { // each in time, or this would fail
		decide(t, store, elsewhere...)
	}
	hung.Signal(syscall.SIGCONT)
	cancel()
	wg.Wait()
}

// keysMove: what one Redis holds counts on in a cluster to which its keys are copied. Limits of one key and algorithm share
// a string; a subject has notes.
func keysMove(t *testing.T, servers *redistest.Cluster) {
	client, server := clusterClient(t, servers), redistest.Start(t)
	one := connect(t, server.Addr)
	store := storeOn(t, one, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	var all [][]limiter.Claim
	for a := range limiter.NumAlgorithms {
		var claims []limiter.Claim
		for i, window := range []time.Duration{time.Hour, 24 * time.Hour} {
			l := limitertest.LimitOf(a, fmt.Sprint("moved.", a, ":", window), limiter.Rate{Count: int64(5 + i), Window: window})
			claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("moved"), Cost: 1, Value: limiter.KeyOf("a value")})
		}
		for range 3 {
			decide(t, store, claims...)
		}
		all = append(all, claims)
	}
	for _, name := range one.Keys(t.Context(), "*").Val() {
		ttl, value := one.PTTL(t.Context(), name).Val(), one.Dump(t.Context(), name).Val()
		if err := client.Restore(t.Context(), name, ttl, value).Err(); err != nil {
			t.Fatal(name, err)
		}
	}
	moved := storeOn(t, client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	for a, claims := range all {
		want, err := store.Inspect(t.Context(), claims)
		if err != nil {
			t.Fatal(err)
		}
		got, err := moved.Inspect(t.Context(), claims)
		if err != nil {
			t.Fatal(err)
		}
		for i := range claims {
			if got.Statuses[i].Remaining != want.Statuses[i].Remaining || want.Statuses[i].Remaining == claims[i].Limit.Rate.Count {
				t.Errorf("%s: %+v in the cluster, %+v before", limiter.Algorithm(a), got.Statuses[i], want.Statuses[i])
			}
		}
		if !claims[0].Limit.Noted {
			continue
		}
		limits := []*limiter.Limit{claims[0].Limit, claims[1].Limit}
		n, err := store.Return(t.Context(), limits, claims[0].Value)
		m, movedErr := moved.Return(t.Context(), limits, claims[0].Value)
		if n == 0 || m != n || err != nil || movedErr != nil {
			t.Errorf("%s: returned %d, %v in the cluster; %d, %v before", limiter.Algorithm(a), m, movedErr, n, err)
		}
	}
}

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
