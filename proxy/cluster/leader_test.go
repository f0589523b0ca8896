package cluster_test

import (
	"context"
	"errors"
	"slices"
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
	c.Leader = cluster.NewLeader(o)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { c.Run(ctx) })
	c.away = func() { cancel(); run.Wait() }
	t.Cleanup(c.away)
	return c
}

// looks is what anybody sees of the lead.
func looks(t *testing.T, c *candidate) view.Leadership {
	t.Helper()
	l, err := c.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
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
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
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
