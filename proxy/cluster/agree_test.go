package cluster_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// configOf is a configuration with that hash and a route of that name.
func configOf(hash string) *config.Config {
	limit := &config.Limit{Name: "l", Route: hash, ID: hash + ".l", Key: &key.Spec{Name: "k"}, Rates: []limiter.Rate{{Count: 1, Window: time.Minute}, {Count: 5, Window: time.Hour}}}
	return &config.Config{Hash: hash, Routes: []*config.Route{{Name: hash, Limits: []*config.Limit{limit}}}}
}

// agree has n take up a configuration and returns its number; 0 is none.
func agree(n *cluster.Node, hash string) (number int64, err error) {
	err = n.Agree(context.Background(), configOf(hash), func(given int64) { number = given })
	return number, err
}

// mustAgree is agrees, which must go well.
func mustAgree(t *testing.T, n *cluster.Node, hash string, want int64) {
	t.Helper()
	if got, err := agree(n, hash); err != nil || got != want {
		t.Fatalf("%s takes up %q as %d, %v; want %d", n.ID(), hash, got, err, want)
	}
}

func TestAgree_SameConfigSameNumber(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	b, _ := join(t, dial(t, s.Addr), "b")
	mustAgree(t, a, "one", 1)
	mustAgree(t, b, "one", 1)
	mustAgree(t, b, "two", 2)
	mustAgree(t, a, "two", 2)
	mustAgree(t, a, "one", 3)
}

func TestAgree_OneAfterTheOther(t *testing.T) {
	s := redistest.Start(t)
	var mu sync.Mutex
	inside, most, calls := 0, 0, 0
	var all sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		n, _ := join(t, dial(t, s.Addr), id)
		all.Go(func() {
			for range 10 {
				err := n.Agree(t.Context(), configOf(id), func(int64) {
					mu.Lock()
					inside++
					calls++
					most = max(most, inside)
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
				})
				if err != nil {
					t.Errorf("node %s: %v", id, err)
				}
			}
		})
	}
	all.Wait()
	if most != 1 || calls != 40 {
		t.Errorf("%d reloads, at most %d at once; want 40, one at a time", calls, most)
	}
}

func TestAgree_WithoutRedisGoesOnAlone(t *testing.T) {
	n := joinAs(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	n.Assume("one", 1)
	var got []int64
	for _, hash := range []string{"one", "two", "three"} {
		number, err := agree(n, hash)
		if !errors.Is(err, cluster.ErrAlone) {
			t.Fatalf("Agree = %v; want ErrAlone", err)
		}
		got = append(got, number)
	}
	if want := []int64{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("numbers %v; want %v", got, want)
	}
}

func TestAgree_WritesWhatLimitsAre(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a, _ := join(t, rdb, "a")
	mustAgree(t, a, "one", 1)
	all, err := a.Limits(t.Context())
	check(t, err)
	want := view.Limit{Rates: []string{"1/1m", "5/1h"}, Algorithm: "token_bucket", Scope: "overall"}
	if got := all["one.l"]; len(all) != 1 || !slices.Equal(got.Rates, want.Rates) || got.Algorithm != want.Algorithm || got.Scope != want.Scope {
		t.Errorf("limits are %+v; want one.l: %+v", all, want)
	}
	mustAgree(t, a, "two", 2)
	all, _ = a.Limits(t.Context())
	if _, ok := all["two.l"]; !ok || len(all) != 1 {
		t.Errorf("limits are %v; want those of the new configuration only", slices.Collect(maps.Keys(all)))
	}
	left := func() []string { return rdb.ZRange(t.Context(), "test:{cluster}:removed", 0, -1).Val() }
	if got := left(); !slices.Equal(got, []string{"one.l"}) {
		t.Errorf("noted as removed: %v; want one.l", got)
	}
	mustAgree(t, a, "one", 3)
	if got := left(); !slices.Equal(got, []string{"two.l"}) {
		t.Errorf("noted as removed: %v; want two.l, one.l is back", got)
	}
	for _, key := range []string{"config", "limits", "removed"} {
		if ttl := rdb.PTTL(t.Context(), "test:{cluster}:"+key).Val(); ttl < limiter.MaxWindow {
			t.Errorf("%s lives for %v; want longer than the longest window", key, ttl)
		}
	}
}

// A blockingHook is a client whose calls of one kind wait.
type blockingHook struct {
	what          string // is in the call
	came, release chan struct{}
}

func (h *blockingHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *blockingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h *blockingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(cmd.String(), h.what) {
			h.came <- struct{}{}
			<-h.release
		}
		return next(ctx, cmd)
	}
}

// A node that is held up in the middle of its turn until others have had theirs
// writes nothing and serves what it served.
func TestAgree_LostTurnChangesNothing(t *testing.T) {
	s := redistest.Start(t)
	slow, other := dial(t, s.Addr), dial(t, s.Addr)
	a, _ := join(t, slow, "a")
	b, _ := join(t, other, "b")
	mustAgree(t, a, "one", 1)
	hold := &blockingHook{what: "removed", came: make(chan struct{}, 2), release: make(chan struct{})}
	slow.AddHook(hold)
	done := make(chan error, 1)
	var swapped int64
	go func() {
		number, err := agree(a, "two")
		swapped = number
		done <- err
	}()
	<-hold.came
	other.Del(t.Context(), "test:{cluster}:reload") // as if the lease were over
	mustAgree(t, b, "three", 2)
	close(hold.release)
	if err := <-done; !errors.Is(err, cluster.ErrBusy) || swapped != 0 {
		t.Errorf("Agree = %v, swapped to %d; want ErrBusy and nothing swapped", err, swapped)
	}
	all, _ := b.Limits(t.Context())
	if _, ok := all["three.l"]; !ok || len(all) != 1 {
		t.Errorf("limits are %v; want those of three only", all)
	}
	if got := other.HGet(t.Context(), "test:{cluster}:config", "hash").Val(); got != "three" {
		t.Errorf("the configuration taken up last is %s; want three", got)
	}
}

// What a node took up alone is numbered when Redis is back, unless the others
// have gone further: then theirs stays.
func TestAgree_ReturnsAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		others string // what they take up meanwhile
		want   int64
		err    error
	}{
		{"others did nothing", "", 2, nil},
		{"others took up the same", "mine", 2, nil},
		{"others went further", "theirs", 0, cluster.ErrBehind},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redistest.Start(t)
			p := redistest.NewFaultProxy(t, s.Addr)
			a, _ := join(t, dial(t, p.Addr), "a")
			b, _ := join(t, dial(t, s.Addr), "b")
			mustAgree(t, a, "one", 1)
			mustAgree(t, b, "one", 1)
			p.Redirect("127.0.0.1:1")
			if number, err := agree(a, "mine"); !errors.Is(err, cluster.ErrAlone) || number != 2 {
				t.Fatalf("alone: %d, %v", number, err)
			}
			if c.others != "" {
				mustAgree(t, b, c.others, 2)
			}
			p.Redirect(s.Addr)
			<-a.Returned()
			if number, err := agree(a, "mine"); number != c.want || !errors.Is(err, c.err) {
				t.Fatalf("back: %d, %v; want %d, %v", number, err, c.want, c.err)
			}
			if c.err != nil {
				if got := dial(t, s.Addr).HGet(t.Context(), "test:{cluster}:config", "hash").Val(); got != c.others {
					t.Errorf("the configuration taken up last is %s; want %s", got, c.others)
				}
				mustAgree(t, a, "newest", 3) // an edit is one for all
			}
		})
	}
}

// A Redis that replies and gives no lock is not another node that is reloading: the configuration is served without the
// others, and the error says why.
func TestAgree_RedisRefusesWrites(t *testing.T) {
	t.Parallel()
	for code, refuse := range map[string]func(c redis.UniversalClient) error{
		"OOM": func(c redis.UniversalClient) error { return c.ConfigSet(t.Context(), "maxmemory", "1").Err() },
		"READONLY": func(c redis.UniversalClient) error {
			return c.(*redis.Client).ReplicaOf(t.Context(), "127.0.0.1", "1").Err()
		},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			rdb := dial(t, redistest.Start(t).Addr)
			a, _ := join(t, rdb, "a")
			mustAgree(t, a, "one", 1)
			check(t, refuse(rdb))
			if number, err := agree(a, "two"); !errors.Is(err, cluster.ErrAlone) || errors.Is(err, cluster.ErrBusy) || number != 2 || !strings.Contains(err.Error(), code) {
				t.Errorf("Agree = %d, %v; want 2 and ErrAlone with %s", number, err, code)
			}
		})
	}
}

// pushes pushes all of texts, one after the other.
func pushes(t *testing.T, n *cluster.Node, texts ...string) (generation int64) {
	t.Helper()
	for _, text := range texts {
		var err error
		if generation, _, err = n.Push(t.Context(), of(text)); err != nil {
			t.Fatal(err)
		}
	}
	return generation
}

// knowing waits until Redis has that many entries of the history, under that
// generation.
func knowing(t *testing.T, n *cluster.Node, generation int64, entries int) {
	t.Helper()
	await.Until(t, "redis knows what the nodes know", func() bool {
		history, err := n.History(t.Context())
		number, also := n.Number(t.Context())
		return err == nil && also == nil && len(history) == entries && number == generation && (entries == 0 || history[0].Generation == generation)
	})
}

// A Redis that comes back empty is told what the nodes know, and the next generation
// is a higher one.
func TestRestore_EmptyRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b")
	pushes(t, all[0].Node, "one", "two", "three")
	await.Until(t, "b serves it", func() bool { return all[1].is("three") })
	check(t, dial(t, s.Addr).FlushAll(t.Context()).Err())
	knowing(t, all[0].Node, 3, 3)
	limits, err := all[0].Limits(t.Context())
	if err != nil || len(limits) == 0 {
		t.Errorf("limits %v, %v; want the definitions again", limits, err)
	}
	late, _ := hosted(t, dial(t, s.Addr), "c")
	await.Until(t, "a node that comes later serves it", func() bool { return late.is("three") })
	if got := pushes(t, all[1].Node, "four"); got != 4 {
		t.Errorf("generation %d; want 4", got)
	}
	if texts := all[0].serves; len(texts) != 4 || texts[3] != 4 {
		t.Errorf("a has served %v; want each once, and none again", texts)
	}
}

// The same at the very moment of a push, before any sign of life.
func TestRestore_BeforeAPush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a := hosts(t, s.Addr, "a")[0]
	pushes(t, a.Node, "one", "two")
	dial(t, s.Addr).FlushAll(t.Context())
	if done, err := a.Restore(t.Context()); err != nil || !done {
		knowing(t, a.Node, 2, 2) // a sign of life came first
	}
	if done, err := a.Restore(t.Context()); err != nil || done {
		t.Errorf("Restore once more = %v, %v; want that nothing is lost", done, err)
	}
	dial(t, s.Addr).FlushAll(t.Context())
	if got := pushes(t, a.Node, "three"); got != 3 {
		t.Errorf("generation %d; want 3", got)
	}
}

// A replica that became master without the last pushes is brought up to date, and
// nobody serves an older one again.
func TestRestore_OlderReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b")
	pushes(t, all[0].Node, "one", "two")
	rdb := dial(t, s.Addr)
	config, history := rdb.Dump(t.Context(), "test:{cluster}:config").Val(), rdb.Dump(t.Context(), "test:{cluster}:history").Val()
	pushes(t, all[0].Node, "three")
	await.Until(t, "b serves it", func() bool { return all[1].is("three") })
	rdb.RestoreReplace(t.Context(), "test:{cluster}:config", 0, config)
	rdb.RestoreReplace(t.Context(), "test:{cluster}:history", 0, history)
	knowing(t, all[0].Node, 3, 3)
	for _, h := range all {
		h.mu.Lock()
		if last := h.serves[len(h.serves)-1]; last != 3 || !strings.Contains(h.text, "three") {
			t.Errorf("node %s serves %v; want nothing after 3", h.ID(), h.serves)
		}
		h.mu.Unlock()
	}
}

// What was pushed to nodes that knew nothing of what was before is the later one, and
// so gets a higher generation.
func TestRestore_PushedMeanwhileIsLater(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a := &host{Node: joinAs(rdb, cluster.Options{Prefix: "test", ID: "a", Source: "redis"})}
	before := of("before")
	a.Adopt(cluster.Entry{Entry: view.Entry{Generation: 5, Hash: before.Bundle.Hash(), Author: "ann"}, Packed: bundle.Seal{}.Pack(before.Bundle), Bundle: before.Bundle}, before.Config)
	fresh := hosts(t, s.Addr, "fresh")[0]
	if got := pushes(t, fresh.Node, "later"); got != 1 {
		t.Fatalf("generation %d; want 1", got)
	}
	if done, err := a.Restore(t.Context()); err != nil || !done {
		t.Fatalf("Restore = %v, %v", done, err)
	}
	history, err := a.History(t.Context())
	if err != nil || len(history) != 2 || history[0].Generation != 6 || history[0].Bundle.Files["a"] != "later" || history[1].Generation != 5 {
		t.Errorf("history %+v, %v; want later as 6, before as 5", history, err)
	}
	await.Until(t, "it is served as 6", func() bool {
		fresh.mu.Lock()
		defer fresh.mu.Unlock()
		return fresh.serves[len(fresh.serves)-1] == 6 && fresh.text == "later"
	})
}

// Nodes that read files of their own give back the number too.
func TestRestore_NodesWithFiles(t *testing.T) {
	s := redistest.Start(t)
	a, b := joinAs(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "a"}), joinAs(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "b"})
	mustAgree(t, a, "one", 1)
	mustAgree(t, a, "two", 2)
	mustAgree(t, a, "three", 3)
	mustAgree(t, b, "three", 3)
	dial(t, s.Addr).FlushAll(context.Background())
	mustAgree(t, b, "four", 4)
	if done, err := a.Restore(t.Context()); err != nil || done {
		t.Errorf("Restore = %v, %v; want that nothing of a's is lost", done, err)
	}
	dial(t, s.Addr).FlushAll(context.Background())
	fresh := joinAs(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "fresh"})
	mustAgree(t, fresh, "five", 1)
	if done, err := b.Restore(t.Context()); err != nil || !done {
		t.Errorf("Restore = %v, %v; want the number raised", done, err)
	}
	mustAgree(t, fresh, "six", 6)
}

// What is published while the slot of the cluster's own keys moves is published wholly.
func TestAgree_WhileTheSlotMoves(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartMasters(t, 3).Addrs()})
	defer rdb.Close()
	ctx := t.Context()
	const key = "test:{cluster}:limits"
	slot := rdb.ClusterKeySlot(ctx, key).Val()
	from, err := rdb.MasterForKey(ctx, key)
	check(t, err)
	other := from
	for i := 0; other == from; i++ {
		if other, err = rdb.MasterForKey(ctx, strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	set := func(n *redis.Client, state, id string) {
		check(t, n.Do(ctx, "cluster", "setslot", slot, state, id).Err())
	}
	n, _ := join(t, rdb, "a")
	mustAgree(t, n, "one", 1)
	mustAgree(t, n, "two", 2) // from now on there is a limit that was removed
	set(other, "importing", from.ClusterMyID(ctx).Val())
	set(from, "migrating", other.ClusterMyID(ctx).Val())
	mustAgree(t, n, "three", 3)
	if all, err := n.Limits(ctx); err != nil || len(all) != 1 || len(all["three.l"].Rates) != 2 {
		t.Errorf("limits are %v, %v; want those of three", all, err)
	}
}
