package cluster_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// check ends the test if there is an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running runs these until the test ends, or the function that it returns is called.
func running(t *testing.T, all ...func(context.Context)) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	for _, f := range all {
		run.Go(func() { f(ctx) })
	}
	end = func() { cancel(); run.Wait() }
	t.Cleanup(end)
	return end
}

// joinAs is cluster.Join with the calls of a single server.
func joinAs(rdb redis.UniversalClient, o cluster.Options) *cluster.Node {
	if o.CallsBySlot == nil {
		o.CallsBySlot = func() []string { return nil }
	}
	return cluster.Join(rdb, o)
}

func dial(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 3 * time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

// join runs a node until the test ends, or until the function that it returns
// is called.
func join(t *testing.T, rdb redis.UniversalClient, id string) (*cluster.Node, func()) {
	t.Helper()
	n := joinAs(rdb, cluster.Options{
		Prefix: "test", ID: id, Version: "v1", Source: "file", CallsBySlot: func() []string { return []string{"127.0.0.1:7001"} },
	})
	return n, running(t, func(ctx context.Context) { n.Run(ctx, "127.0.0.1:9901") })
}

func TestNode_CountsThoseThatLive(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	b, leaveB := join(t, dial(t, s.Addr), "b")
	await.Until(t, "each node sees both", func() bool { return a.Live() == 2 && b.Live() == 2 })
	leaveB()
	await.Until(t, "a node that leaves is not counted", func() bool { return a.Live() == 1 })
}

func TestNode_RemembersWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	join(t, dial(t, s.Addr), "b")
	await.Until(t, "a sees both", func() bool { return a.Live() == 2 })
	s.Kill()
	if err := a.Agree(t.Context(), configOf("one"), func(int64) {}); !errors.Is(err, cluster.ErrAlone) {
		t.Fatalf("Agree without Redis = %v; want ErrAlone", err)
	}
	if got := a.Live(); got != 2 {
		t.Errorf("Live without Redis = %d; want 2 still", got)
	}
}

func TestNode_IsAloneUntilItHears(t *testing.T) {
	n := joinAs(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	if got := n.Live(); got != 1 {
		t.Errorf("Live = %d; want 1", got)
	}
}

func TestNodes_TellWhatEachSays(t *testing.T) {
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	b, leaveB := join(t, dial(t, s.Addr), "b")
	check(t, a.Agree(t.Context(), configOf("one"), func(int64) {}))
	var all []view.Member
	await.Until(t, "b reads what a serves", func() bool {
		var err error
		all, err = b.Nodes(t.Context())
		return err == nil && len(all) == 2 && all[0].Generation == 1
	})
	got := all[0]
	if since := time.Since(got.Seen); since < -time.Minute || since > time.Minute {
		t.Errorf("seen %v", got.Seen)
	}
	if since := time.Since(got.Started); since < 0 || since > time.Minute {
		t.Errorf("started %v", got.Started)
	}
	got.Seen, got.Started = time.Time{}, time.Time{}
	if want := (view.Member{ID: "a", Address: "127.0.0.1:9901", Version: "v1", Source: "file", Hash: "one", Generation: 1, CallsBySlot: []string{"127.0.0.1:7001"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("a says %+v; want %+v", got, want)
	}
	leaveB()
	if all, err := a.Nodes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("after b left: %+v, %v; want a alone", all, err)
	}
}

func TestNodes_ErrorsAreTold(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a, _ := join(t, rdb, "a")
	await.Until(t, "a is heard", func() bool { all, err := a.Nodes(t.Context()); return err == nil && len(all) == 1 })
	now := rdb.Time(t.Context()).Val().UnixMilli()
	rdb.ZAdd(t.Context(), "test:{cluster}:nodes", redis.Z{Score: float64(now), Member: "x"})
	rdb.HSet(t.Context(), "test:{cluster}:members", "x", "no JSON")
	if all, err := a.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "node x") {
		t.Errorf("Nodes = %+v, %v; want that x is not understood", all, err)
	}
	s.Kill()
	if _, err := a.Nodes(t.Context()); err == nil {
		t.Error("Nodes without Redis is no error")
	}
}

// A node that dies is lost, with its last sign, until it is heard again; one that leaves is not. An outage, in which
// nobody is heard, loses nobody.
func TestNode_IsLost(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	a, _ := join(t, rdb, "a")
	_, leave := join(t, rdb, "c")
	await.Until(t, "a sees both", func() bool { return a.Live() == 2 })
	leave()
	long := float64(rdb.Time(t.Context()).Val().Add(-time.Minute).UnixMilli())
	rdb.HSet(t.Context(), "test:{cluster}:members", "b", `{"address":"10.0.0.2:9901","hash":"h"}`)
	rdb.ZAdd(t.Context(), "test:{cluster}:nodes", redis.Z{Score: long, Member: "b"})
	a.HearFor(time.Minute)
	await.Value(t, a.LostMore(), "a node is lost")
	lost, err := a.Lost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].ID != "b" || lost[0].Address != "10.0.0.2:9901" || lost[0].Seen.UnixMilli() != int64(long) || a.LostCount() != 1 {
		t.Errorf("lost are %+v, %v; want b", lost, err)
	}
	if all, err := a.Nodes(t.Context()); err != nil || len(all) != 1 || a.Live() != 1 {
		t.Errorf("live are %+v, %v; want a", all, err)
	}
	b, _ := join(t, rdb, "b")
	await.Until(t, "b is back", func() bool { return a.LostCount() == 0 && a.Live() == 2 })

	a.HearFor(time.Nanosecond)
	rdb.ZAdd(t.Context(), "test:{cluster}:nodes", redis.Z{Score: long, Member: "a"}, redis.Z{Score: long, Member: "b"}, redis.Z{Score: long, Member: "d"})
	rdb.HSet(t.Context(), "test:{cluster}:members", "d", `{"hash":"h"}`)
	await.Until(t, "both are heard again", func() bool { return a.Live() == 2 && b.Live() == 2 })
	if lost, err := a.Lost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("%+v, %v is lost by the outage", lost, err)
	}
	a.HearFor(time.Minute)
	await.Until(t, "d is lost", func() bool {
		lost, err := a.Lost(t.Context())
		return err == nil && len(lost) == 1 && lost[0].ID == "d"
	})
	rdb.HSet(t.Context(), "test:{cluster}:lost", "d", "1000 {}")
	await.Until(t, "who was lost long ago is forgotten", func() bool { return a.LostCount() == 0 })
}

// A dead node does not live on until the clock of Redis, which was set back, reads again what it read at its last sign.
func TestNode_DiesAlsoWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	rdb.HSet(t.Context(), "test:{cluster}:members", "b", "{}")
	rdb.ZAdd(t.Context(), "test:{cluster}:nodes", redis.Z{Score: float64(rdb.Time(t.Context()).Val().Add(time.Hour).UnixMilli()), Member: "b"})
	a, _ := join(t, rdb, "a")
	await.Until(t, "a sees both", func() bool { return a.Live() == 2 })
	seen, now := rdb.ZScore(t.Context(), "test:{cluster}:nodes", "b").Val(), rdb.Time(t.Context()).Val()
	if seen > float64(now.UnixMilli()) {
		t.Errorf("its last sign is %v ahead", time.UnixMilli(int64(seen)).Sub(now))
	}
}

func TestSalt_IsThatOfTheFirst(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer rdb.Close()
	salt := func(prefix string, own byte) [32]byte {
		t.Helper()
		got, err := cluster.Salt(t.Context(), rdb, prefix, [32]byte{own})
		check(t, err)
		return got
	}
	if first, second := salt("weir", 1), salt("weir", 2); first != [32]byte{1} || second != first {
		t.Errorf("salts %v and %v; want that of the first twice", first, second)
	}
	if got := salt("other", 3); got != [32]byte{3} {
		t.Errorf("salt %v under another prefix; want its own", got)
	}
	check(t, rdb.Expire(t.Context(), "weir:{cluster}:salt", time.Minute).Err())
	salt("weir", 4)
	if left := rdb.TTL(t.Context(), "weir:{cluster}:salt").Val(); left < 29*24*time.Hour {
		t.Errorf("the salt is kept for %v; want a month from when it was asked for last", left)
	}
	check(t, rdb.Set(t.Context(), "weir:{cluster}:salt", "short", 0).Err())
	if got, err := cluster.Salt(t.Context(), rdb, "weir", [32]byte{5}); err == nil || got != [32]byte{5} {
		t.Errorf("%v, %v of a salt that is none; want the own one and an error", got, err)
	}
}

// A candidate is one Leader that runs until it is sent away.
type candidate struct {
	*cluster.Leader
	terms atomic.Int64 // how often it took the lead
	lost  chan error   // why it lost it
	away  func()
}

// runs competes for the lead until the test ends.
func runs(t *testing.T, o cluster.LeaderOptions) *candidate {
	t.Helper()
	c := &candidate{lost: make(chan error, 1000)}
	o.Prefix = "test"
	o.Acquired = func(cluster.Term) { c.terms.Add(1) }
	o.Lost = func(_ cluster.Term, cause error) { c.lost <- cause }
	if o.Ran == nil {
		o.Ran = func(view.TaskRun) {}
	}
	c.Leader = cluster.NewLeader(o)
	c.away = running(t, func(ctx context.Context) { c.Run(ctx) })
	return c
}

// looks is what anybody sees of the lead.
func looks(t *testing.T, c *candidate) view.Leadership {
	t.Helper()
	l, err := c.Current(t.Context())
	check(t, err)
	return l
}

// once is a task that tells of each run.
func once(name string, runs *atomic.Int64) cluster.Task {
	return cluster.Task{Name: name, Every: time.Millisecond, Run: func(context.Context, cluster.Term) (string, error) {
		runs.Add(1)
		return "looked", nil
	}}
}

func TestLeader_IsSeenByAll(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	var count atomic.Int64
	a := runs(t, cluster.LeaderOptions{Client: rdb, ID: "a", Tasks: []cluster.Task{
		once("good", &count),
		{Name: "bad", Every: time.Hour, Run: func(context.Context, cluster.Term) (string, error) { return "", errors.New("no luck") }},
	}})
	await.Until(t, "a leads and its tasks have run", func() bool { return len(looks(t, a).Tasks) == 2 })
	b := runs(t, cluster.LeaderOptions{Client: rdb, ID: "b"})
	l := looks(t, b)
	if l.Node != "a" || l.Token == 0 || l.Since.IsZero() {
		t.Errorf("b sees %+v; want that a leads", l)
	}
	bad, good := l.Tasks[0], l.Tasks[1]
	if bad.Task != "bad" || bad.Error != "no luck" || bad.Node != "a" || bad.Next.Sub(bad.At) < time.Hour {
		t.Errorf("the task that fails is told as %+v", bad)
	}
	if good.Task != "good" || good.Did != "looked" || good.Error != "" {
		t.Errorf("the task that works is told as %+v", good)
	}
	a.away()
	if err := <-a.lost; !errors.Is(err, context.Canceled) {
		t.Errorf("a lost the lead because of %v; want its context", err)
	}
	await.Until(t, "b leads as soon as a is gone", func() bool { return looks(t, b).Node == "b" })
	if token := looks(t, b).Token; token <= l.Token {
		t.Errorf("the token of b is %d after %d; want a larger one", token, l.Token)
	}
	b.away()
	if l := looks(t, b); l.Node != "" || len(l.Tasks) != 2 {
		t.Errorf("when all are gone the lead is %+v; want nobody's, and the tasks remembered", l)
	}
}

// The guarded resource notes each run that begins while another has not ended.
func TestLeader_NoTaskRunsTwiceAtATime(t *testing.T) {
	s := redistest.Start(t)
	eye := dial(t, s.Addr)
	const rounds = 30
	var all []*candidate
	for _, id := range []string{"a", "b", "c"} {
		rdb := dial(t, s.Addr)
		task := cluster.Task{Name: "count", Every: time.Millisecond, Run: func(ctx context.Context, term cluster.Term) (string, error) {
			err := cluster.Behind(ctx, rdb, term, `if redis.call('INCR', 'inside') > 1 then redis.call('INCR', 'overlaps') end redis.call('INCR', 'runs') return 1`)
			if err != nil {
				return "", err
			}
			return "", cluster.Behind(context.WithoutCancel(ctx), rdb, term, `redis.call('DECR', 'inside') return 1`)
		}}
		all = append(all, runs(t, cluster.LeaderOptions{Client: rdb, ID: id, Lease: time.Second, Tasks: []cluster.Task{task}}))
	}
	await.Until(t, "the task runs", func() bool { n, _ := eye.Get(t.Context(), "runs").Int(); return n >= rounds })
	leads := func(c *candidate) bool { return c.terms.Load() > int64(len(c.lost)) }
	for range 2 { // the leader goes, another follows
		i := slices.IndexFunc(all, leads)
		all[i].away()
		all = slices.Delete(all, i, i+1)
		before, _ := eye.Get(t.Context(), "runs").Int()
		await.Until(t, "the task goes on", func() bool { n, _ := eye.Get(t.Context(), "runs").Int(); return n >= before+rounds })
	}
	if n, _ := eye.Get(t.Context(), "overlaps").Int(); n != 0 {
		t.Errorf("%d runs began while another had not ended", n)
	}
}

// A leader that was stopped, and does not know yet that another leads, changes
// nothing any more, and runs nothing any more.
func TestLeader_LateWritesAreRefused(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	began, goOn := make(chan struct{}), make(chan struct{})
	results := make(chan error, 1000)
	a := runs(t, cluster.LeaderOptions{Client: rdb, ID: "a", Tasks: []cluster.Task{
		{Name: "write", Every: time.Millisecond, Run: func(_ context.Context, term cluster.Term) (string, error) {
			began <- struct{}{}
			<-goOn // stopped for longer than the lease, deaf to its context
			err := cluster.Behind(context.Background(), rdb, term, `return redis.call('SET', 'written', 'a')`)
			results <- err
			return "", err
		}},
	}})
	<-began
	b := runs(t, cluster.LeaderOptions{Client: rdb, ID: "b"})
	rdb.Del(t.Context(), "test:{cluster}:lead") // as a failover may lose it
	await.Until(t, "b leads", func() bool { return looks(t, b).Node == "b" })
	close(goOn)
	if err := <-results; !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("the late write of a is answered %v; want ErrDeposed", err)
	}
	a.away()
	if cause := <-a.lost; !errors.Is(cause, lock.ErrLost) && !errors.Is(cause, context.Canceled) {
		t.Errorf("a lost the lead because of %v", cause)
	}
	if got := rdb.Get(t.Context(), "written").Val(); got != "" {
		t.Errorf("a wrote %q after it was deposed", got)
	}
	if l := looks(t, b); l.Node != "b" || len(l.Tasks) != 0 {
		t.Errorf("a noted its late run: %+v", l)
	}
}

func TestLeader_DeadOneIsFollowed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mortal := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	const lease = time.Second
	a := runs(t, cluster.LeaderOptions{Client: mortal, ID: "a", Lease: lease})
	await.Until(t, "a leads", func() bool { return a.terms.Load() == 1 })
	b := runs(t, cluster.LeaderOptions{Client: dial(t, s.Addr), ID: "b", Lease: lease})
	mortal.Close() // a is heard of no more, and gives nothing back
	died := time.Now()
	await.Until(t, "b leads", func() bool { return looks(t, b).Node == "b" })
	since := looks(t, b).Since
	if took := since.Sub(died); took > 10*lease { // far more, for a busy machine
		t.Errorf("b led %v after a died, with a lease of %v", took, lease)
	}
	if cause := <-a.lost; !errors.Is(cause, lock.ErrLost) {
		t.Errorf("a lost the lead because of %v; want lock.ErrLost", cause)
	}
}

func TestLeader_OnlyTheHolderOfTheLockGetsAToken(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	if token, err := cluster.Begin(t.Context(), rdb, "nobody:1"); err == nil {
		t.Errorf("without the lock there is the token %d; want an error", token)
	}
	rdb.HSet(t.Context(), "test:{cluster}:lead", "me:1", 1)
	before := rdb.Time(t.Context()).Val().UnixMilli()
	first, err1 := cluster.Begin(t.Context(), rdb, "me:1")
	second, err2 := cluster.Begin(t.Context(), rdb, "me:1")
	rdb.Del(t.Context(), "test:{cluster}:leader") // Redis forgets
	third, err3 := cluster.Begin(t.Context(), rdb, "me:1")
	if err := errors.Join(err1, err2, err3); err != nil || first < before || second <= first || third < before {
		t.Errorf("tokens %d, %d and, forgotten, %d (%v) from %d on; want them to rise", first, second, third, err, before)
	}
}

func TestLeader_AloneLeadsAtOnce(t *testing.T) {
	var count atomic.Int64
	c := runs(t, cluster.LeaderOptions{ID: "a", Tasks: []cluster.Task{once("two", &count), once("one", &count)}})
	await.Until(t, "both tasks have run", func() bool { return len(looks(t, c).Tasks) == 2 && count.Load() > 3 })
	if l := looks(t, c); l.Node != "a" || l.Tasks[0].Task != "one" || l.Tasks[1].Task != "two" || l.Since.IsZero() {
		t.Errorf("alone, the lead is %+v", l)
	}
	c.away()
	if l := looks(t, c); l.Node != "" {
		t.Errorf("after its end the lead is %+v; want nobody's", l)
	}
}
