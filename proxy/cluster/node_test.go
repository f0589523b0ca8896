package cluster_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

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
	n := cluster.Join(rdb, cluster.Options{Prefix: "test", ID: id, Version: "v1", Source: "file"})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { n.Run(ctx, "127.0.0.1:9901") })
	leave := func() { cancel(); run.Wait() }
	t.Cleanup(leave)
	return n, leave
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
	n := cluster.Join(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	if got := n.Live(); got != 1 {
		t.Errorf("Live = %d; want 1", got)
	}
}

func TestNodes_TellWhatEachSays(t *testing.T) {
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	b, leaveB := join(t, dial(t, s.Addr), "b")
	if err := a.Agree(t.Context(), configOf("one"), func(int64) {}); err != nil {
		t.Fatal(err)
	}
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
	if want := (view.Member{ID: "a", Address: "127.0.0.1:9901", Version: "v1", Source: "file", Hash: "one", Generation: 1}); got != want {
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
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
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
