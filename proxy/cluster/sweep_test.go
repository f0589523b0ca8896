package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A field is a Redis in which limits have counted, some of which are no more.
type field struct {
	t    *testing.T
	rdb  redis.UniversalClient
	node *cluster.Node
	hash string // of what all nodes serve
	term cluster.Term

	stores map[string]*redisstore.Store // by their prefix
}

// nodes are the only one that there is, without a wait for its sign of life.
func (f *field) nodes(context.Context) ([]view.Member, error) {
	return []view.Member{{ID: "a", Hash: f.hash}}, nil
}

// sown is a field whose configuration has no limit but send.phone any more, which
// had send.old and send.shared before; it was counted for all of them.
func sown(t *testing.T, rdb redis.UniversalClient) *field {
	t.Helper()
	f := &field{t: t, rdb: rdb, stores: map[string]*redisstore.Store{}}
	f.node, _ = join(t, rdb, "a")
	f.serves("phone, old, shared")
	f.serves("phone")
	f.term = leading(t, rdb)
	return f
}

// serves makes a configuration with these limits the last one.
func (f *field) serves(limits string) {
	f.t.Helper()
	c := limited(f.t, limits)
	check(f.t, f.node.Agree(f.t.Context(), c, func(int64) {}))
	f.hash = c.Hash
}

// limited is a configuration with these limits.
func limited(t *testing.T, names string) *config.Config {
	t.Helper()
	text := "upstreams: {demo: echo}\nroutes:\n  - name: send\n    match: {path: /}\n    upstream: demo\n    limits:\n"
	for name := range strings.SplitSeq(names, ", ") {
		text += "      - {name: " + name + ", key: 'header:X-" + name + "', rate: 1/1h}\n"
	}
	c, err := config.LoadText("weir.yaml", []byte(text))
	check(t, err)
	return c
}

// store is the store with that prefix.
func (f *field) store(prefix string) *redisstore.Store {
	if f.stores[prefix] == nil {
		f.stores[prefix] = redisstore.New(f.rdb, redisstore.Options{Prefix: prefix, Timeout: 5 * time.Second, CachedRefusals: -1})
		f.t.Cleanup(func() { f.stores[prefix].Close() })
	}
	return f.stores[prefix]
}

// counts lets the store count once for each of n keys.
func (f *field) counts(prefix string, l limiter.Limit, n int) {
	f.t.Helper()
	store := f.store(prefix)
	l.Rate = limiter.Rate{Count: 3, Window: time.Hour}
	for i := range n {
		claims := []limiter.Claim{{Limit: &l, Key: limiter.KeyOf(strconv.Itoa(i)), Cost: 1}}
		var d limiter.Decision
		check(f.t, store.Take(f.t.Context(), claims, &d))
	}
}

// keys are all that lie in Redis for limits, in order.
func (f *field) keys() []string {
	f.t.Helper()
	var all []string
	each := func(ctx context.Context, c *redis.Client) error {
		names, err := c.Keys(ctx, "*:{????????????????????????????????}:*").Result()
		all = append(all, names...)
		return err
	}
	var err error
	if c, apart := f.rdb.(*redis.ClusterClient); apart {
		for _, name := range clusterMasters(f.t, c) {
			err = errors.Join(err, each(f.t.Context(), name))
		}
	} else {
		err = each(f.t.Context(), f.rdb.(*redis.Client))
	}
	check(f.t, err)
	slices.Sort(all)
	return all
}

func clusterMasters(t *testing.T, c *redis.ClusterClient) []*redis.Client {
	t.Helper()
	found := make(chan *redis.Client, 16)
	check(t, c.ForEachMaster(t.Context(), func(_ context.Context, m *redis.Client) error { found <- m; return nil }))
	close(found)
	var all []*redis.Client
	for m := range found {
		all = append(all, m)
	}
	return all
}

// sweep takes steps until one says that it is done.
func (f *field) sweep(grace time.Duration) string {
	f.t.Helper()
	task := cluster.NewSweep(f.rdb, "test", grace, f.nodes).Task()
	var did string
	await.Until(f.t, "the sweep is done", func() bool {
		var err error
		if did, err = task.Run(f.t.Context(), f.term); err != nil {
			f.t.Fatal(err)
		}
		return did == "" || strings.HasPrefix(did, "deleted") && !strings.HasSuffix(did, "so far")
	})
	return did
}

func TestSweep_OnlyWhatIsNoMore(t *testing.T) {
	t.Parallel()
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.counts("test", limiter.Limit{Name: "send.phone:1h"}, 3)                                       // lives
	f.counts("test", limiter.Limit{Name: "send.older:1h"}, 1)                                       // unknown, and never ours to judge
	f.counts("test", limiter.Limit{Name: "x.send.old:1h"}, 1)                                       // of another route
	f.counts("other", limiter.Limit{Name: "send.old:1h"}, 1)                                        // of another Weir
	f.rdb.Set(t.Context(), "test:{0123456789abcdef0123456789abcdef}:send.old:notes:1", "x", 0)      // not the store's
	f.rdb.Set(t.Context(), "test:{0123456789abcdef0123456789abcde}:send.old:1h:value", "x", 0)      // neither
	f.rdb.HSet(t.Context(), "test:{00000000000000000000000000000000}:send.shared:1h", "rate", 1)    // a Java program's
	f.rdb.Set(t.Context(), "test:{00000000000000000000000000000000}:send.shared:1h:value", "1", 0)  // and
	f.rdb.Set(t.Context(), "test:{00000000000000000000000000000000}:send.shared:1h:permits", "", 0) // its counts
	want := f.keys()
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Concurrent} {
		f.counts("test", limiter.Limit{Name: "send.old:1h", Algorithm: algorithm}, 3)
		f.counts("test", limiter.Limit{Name: "send.old:1d", Algorithm: algorithm, Scope: limiter.PerClient}, 1)
	}
	f.counts("test", limiter.Limit{Name: "send.old:refused"}, 2)
	f.counts("test", limiter.Limit{Name: "send.shared:1h"}, 1)

	if did := f.sweep(time.Hour); did != "" {
		t.Errorf("within the grace the sweep says %q; want nothing", did)
	}
	if did := f.sweep(0); !regexp.MustCompile(`^deleted \d+ keys of 2 removed limits$`).MatchString(did) {
		t.Errorf("the sweep says %q", did)
	}
	if got := f.keys(); !slices.Equal(got, want) {
		t.Errorf("the sweep left\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if did := f.sweep(0); did != "" {
		t.Errorf("when all is done the sweep says %q; want nothing", did)
	}
}

// A limit that comes back in the middle of a sweep keeps what was counted since.
func TestSweep_SparesWhatComesBack(t *testing.T) {
	t.Parallel()
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.counts("test", limiter.Limit{Name: "send.old:1h"}, 3000)
	task := cluster.NewSweep(f.rdb, "test", 0, f.nodes).Task()
	if did, err := task.Run(t.Context(), f.term); err != nil || !strings.HasSuffix(did, "so far") {
		t.Fatalf("the first step says %q %v; want that it is not done", did, err)
	}
	want := f.keys()
	f.serves("phone, old")
	if did, err := task.Run(t.Context(), f.term); err != nil || strings.HasSuffix(did, "so far") {
		t.Errorf("the next step says %q %v; want that it is done", did, err)
	}
	sweep := cluster.NewSweep(f.rdb, "test", 0, f.nodes) // one that has not heard of it
	check(t, sweep.Remove(t.Context(), f.term, []string{"send.old"}, want))
	if got := f.keys(); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%d of %d keys are left of a limit that came back", len(got), len(want))
	}
}

func TestSweep_LooksAtFewKeysAtATime(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	pipe := f.rdb.Pipeline()
	for i := range 20_000 {
		pipe.Set(t.Context(), fmt.Sprint("noise", i), "", 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	task := cluster.NewSweep(f.rdb, "test", 0, f.nodes).Task()
	for step := 1; ; step++ {
		did, err := task.Run(t.Context(), f.term)
		check(t, err)
		ran := redistest.Commands(t, f.rdb)
		if n := ran["scan"].Calls; n == 0 || n > 20*step {
			t.Fatalf("after %d steps SCAN was called %d times; want at most 20 a step", step, n)
		}
		if ran["keys"].Calls > 0 {
			t.Fatal("KEYS was called")
		}
		if !strings.HasSuffix(did, "so far") {
			if step < 3 {
				t.Errorf("20,000 keys took %d steps; want several", step)
			}
			return
		}
	}
}

func TestSweep_ADeposedLeaderDeletesNothing(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.counts("test", limiter.Limit{Name: "send.old:1h"}, 3)
	want := f.keys()
	// Deposed before it begins, and between leave and deletion.
	sweep := cluster.NewSweep(f.rdb, "test", 0, f.nodes)
	old := f.term
	f.term = leading(t, f.rdb)
	if _, err := sweep.Task().Run(t.Context(), old); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("the deposed leader is answered %v; want ErrDeposed", err)
	}
	if err := sweep.Remove(t.Context(), old, []string{"send.old"}, want); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("the deposed leader's deletion is answered %v; want ErrDeposed", err)
	}
	if got := f.keys(); !slices.Equal(got, want) {
		t.Errorf("the deposed leader left %q of %q", got, want)
	}
}

// A node that serves another file may still count for a limit that is gone.
func TestSweep_WaitsForNodesThatAreBehind(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.counts("test", limiter.Limit{Name: "send.old:1h"}, 1)
	want := f.keys()
	knows := func(n int) {
		t.Helper()
		await.Until(t, "the nodes are known", func() bool {
			members, err := f.node.Nodes(t.Context())
			return err == nil && len(members) == n && members[0].Hash == f.hash
		})
	}
	behind, gone := join(t, f.rdb, "b")
	behind.Assume(limited(t, "old").Hash, 1)
	knows(2)
	task := cluster.NewSweep(f.rdb, "test", 0, f.node.Nodes).Task()
	if did, err := task.Run(t.Context(), f.term); err != nil || !strings.HasPrefix(did, "waits") || !slices.Equal(f.keys(), want) {
		t.Errorf("beside a node that is behind the sweep says %q %v and leaves %q of %q", did, err, f.keys(), want)
	}
	gone()
	knows(1)
	if did, err := task.Run(t.Context(), f.term); err != nil || len(f.keys()) != 0 {
		t.Errorf("when that node is gone the sweep says %q %v and leaves %q", did, err, f.keys())
	}
}

// In a cluster the keys lie on other servers than what is known of limits.
func TestSweep_InARedisCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: 3 * time.Second})
	t.Cleanup(func() { rdb.Close() })
	f := sown(t, rdb)
	f.counts("test", limiter.Limit{Name: "send.phone:1h"}, 20)
	want := f.keys()
	f.counts("test", limiter.Limit{Name: "send.old:1h"}, 20)
	f.takes(returning("send.old")) // whose notes lie on other servers than what they note
	f.sweep(0)
	if got := f.keys(); len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("the sweep left %d keys, want those %d of the limit that lives", len(got), len(want))
	}

	// A sweep that began at a master which fails goes on at the one that takes over.
	f.serves("phone, old")
	f.serves("phone")
	f.counts("test", limiter.Limit{Name: "send.old:1h"}, 20)
	task := cluster.NewSweep(rdb, "test", 0, f.nodes).Task()
	check(t, rdb.ForEachShard(t.Context(), func(ctx context.Context, n *redis.Client) error {
		return n.ConfigSet(ctx, "cluster-require-full-coverage", "no").Err()
	}))
	state, err := rdb.MasterForKey(t.Context(), "test:{cluster}:leader")
	check(t, err)
	c.Nodes[slices.IndexFunc(c.Nodes, func(n *redistest.Server) bool { return n.Addr != state.Options().Addr })].Kill()
	if did, err := task.Run(t.Context(), f.term); err == nil {
		t.Log("a replica has taken over before the sweep asked its master: " + did)
	}
	await.Until(t, "the sweep goes on", func() bool {
		did, err := task.Run(t.Context(), f.term)
		return err == nil && strings.HasPrefix(did, "deleted")
	})
	await.Until(t, "the keys are deleted", func() bool { return slices.Equal(f.keys(), want) })
}

// returning are the limits that a proxy makes of one with return_on: its rates, and what shadow mode would
// have refused.
func returning(name string) map[string][]*limiter.Limit {
	of := func(suffix string, window time.Duration) *limiter.Limit {
		return &limiter.Limit{Name: name + suffix, Rate: limiter.Rate{Count: 3, Window: window}, Noted: true}
	}
	hour, day := of(":1h", time.Hour), of(":1d", 24*time.Hour)
	for _, l := range []*limiter.Limit{hour, day} {
		l.Algorithm, l.Conversion = limiter.Conversion, 50
	}
	return map[string][]*limiter.Limit{
		"conversion": {hour, day}, "shadow": {of(":shadow:refused", 24*time.Hour)},
		"cooldown": {{Name: name + ":cooldown", Algorithm: limiter.Cooldown, Rate: limiter.Rate{Count: 1, Window: time.Hour}, Steps: []time.Duration{time.Minute}}},
	}
}

// takes lets the store take for a subject under all of these limits, and return what it took for another.
func (f *field) takes(limits map[string][]*limiter.Limit) {
	f.t.Helper()
	store := f.store("test")
	for _, windows := range limits {
		for _, subject := range []limiter.Key{limiter.KeyOf("ann"), limiter.KeyOf("bob")} {
			var claims []limiter.Claim
			for _, l := range windows {
				claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("CN", subject.String()), Cost: 1, Value: subject})
			}
			var d limiter.Decision
			if err := store.Take(f.t.Context(), claims, &d); err != nil || !d.Allowed {
				f.t.Fatal(d, err)
			}
		}
		if windows[0].Noted {
			if n, err := store.Return(f.t.Context(), windows, limiter.KeyOf("bob")); n != 1 || err != nil {
				f.t.Fatal(n, err)
			}
		}
	}
}

// All that a limit with return_on leaves expires by itself, and is deleted when the limit is removed.
func TestSweep_NothingOfReturnsStays(t *testing.T) {
	t.Parallel()
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.takes(returning("send.phone"))
	want := f.keys()
	f.takes(returning("send.old"))
	for _, sign := range []string{"{v}", "{n}", "{c}", ":shadow{n}", ":shadow:refused:value"} {
		if !slices.ContainsFunc(f.keys(), func(key string) bool { return strings.HasSuffix(key, "send.old"+sign) }) {
			t.Errorf("no key ends in %s: %q", sign, f.keys())
		}
	}
	for _, key := range f.keys() {
		if ttl := f.rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 31*24*time.Hour {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	f.sweep(0)
	if got := f.keys(); !slices.Equal(got, want) {
		t.Errorf("the sweep left\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The keys of a conversion are found, and its subjects are none of them.
func TestCounted_FindsConversions(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.takes(returning("send.old"))
	all, whole, err := f.node.Counted(t.Context(), map[string]bool{"send.old:1h": true})
	for _, c := range all {
		if c.Key == limiter.KeyOf("ann") || c.Key == limiter.KeyOf("bob") {
			t.Errorf("the subject %v is among the keys", c.Key)
		}
	}
	if err != nil || !whole || len(all) != 2 {
		t.Errorf("Counted = %v, %v, %v; want the two countries", all, whole, err)
	}
}

// Counted finds what the store writes, each key once, under the limits that are asked
// for and our prefix, and says when it is a sample.
func TestCounted_IsWhatTheStoreWrites(t *testing.T) {
	f := sown(t, dial(t, redistest.Start(t).Addr))
	f.counts("test", limiter.Limit{Name: "send.phone:1h"}, 3)
	f.counts("test", limiter.Limit{Name: "send.ip:1h"}, 2)
	f.counts("other", limiter.Limit{Name: "send.phone:1h"}, 4)
	all, whole, err := f.node.Counted(t.Context(), map[string]bool{"send.phone:1h": true, "send.gone:1h": true})
	if err != nil || !whole || len(all) != 3 {
		t.Fatalf("Counted = %v, %v, %v; want the three phones, and that these are all", all, whole, err)
	}
	seen := map[limiter.Key]bool{}
	for _, c := range all {
		if seen[c.Key] || c.Limit != "send.phone:1h" {
			t.Errorf("counted %+v; want each key once, of send.phone:1h", c)
		}
		seen[c.Key] = true
	}
	if !seen[limiter.KeyOf("2")] {
		t.Errorf("the key of 2 is not among %v", all)
	}

	pipe := f.rdb.Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), "test:{"+limiter.KeyOf("many", fmt.Sprint(i)).String()+"}:send.phone:1h:value", 1, time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, whole, err = f.node.Counted(t.Context(), map[string]bool{"send.phone:1h": true})
	if err != nil || whole || len(all) < 2000 || len(all) >= 5000 {
		t.Errorf("of 5003 keys %d were found, whole %v, %v; want a sample", len(all), whole, err)
	}
}

// Windows that share a string are found with it, whatever their algorithm.
func TestCounted_FindsWindowsThatShareAString(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.SlidingLog, limiter.GCRA, limiter.FixedWindow, limiter.SlidingWindow, limiter.Cooldown, limiter.Distinct} {
		rdb := dial(t, redistest.Start(t).Addr)
		n, _ := join(t, rdb, "a")
		store := redisstore.New(rdb, redisstore.Options{Prefix: "test", Timeout: time.Minute, CachedRefusals: -1})
		var claims []limiter.Claim
		for _, name := range []string{"send.fan:1h", "send.fan:1d", "send.other:1h"} {
			l := limitertest.LimitOf(a, name, limiter.Rate{Count: 1, Window: time.Hour})
			claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf("p"), Cost: 1, Value: limiter.KeyOf("v")})
		}
		var d limiter.Decision
		if err := store.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
			t.Fatal(a, d, err)
		}
		store.Close()
		all, whole, err := n.Counted(t.Context(), map[string]bool{"send.fan:1h": true, "send.fan:1d": true, "send.fan2:1h": true})
		slices.SortFunc(all, func(a, b cluster.CountedKey) int { return strings.Compare(a.Limit, b.Limit) })
		want := []cluster.CountedKey{{Limit: "send.fan:1d", Key: limiter.KeyOf("p")}, {Limit: "send.fan:1h", Key: limiter.KeyOf("p")}}
		if err != nil || !whole || !slices.Equal(all, want) {
			t.Errorf("%s: Counted = %v, %v, %v; want %v", a, all, whole, err, want)
		}
	}
}

func TestCounted_SaysWhatItLookedFor(t *testing.T) {
	n := joinAs(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	if _, _, err := n.Counted(t.Context(), nil); err == nil || err.Error()[:17] != "look for counts: " {
		t.Errorf("Counted without Redis = %v", err)
	}
}
