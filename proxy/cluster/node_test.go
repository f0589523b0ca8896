package cluster_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/redistest"
)

func dial(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 3 * time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// joined runs a node until the test ends, or until the function that it returns
// is called.
func joined(t *testing.T, rdb redis.UniversalClient, id string) (*cluster.Node, func()) {
	t.Helper()
	n := cluster.Join(rdb, "test", id)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { n.Run(ctx) })
	leave := func() { cancel(); run.Wait() }
	t.Cleanup(leave)
	return n, leave
}

func TestNode_CountsThoseThatLive(t *testing.T) {
	s := redistest.Start(t)
	a, _ := joined(t, dial(t, s.Addr), "a")
	b, leaveB := joined(t, dial(t, s.Addr), "b")
	eventually(t, "each node sees both", func() bool { return a.Live() == 2 && b.Live() == 2 })
	leaveB()
	eventually(t, "a node that leaves is not counted", func() bool { return a.Live() == 1 })
}

func TestNode_RemembersWhileRedisIsAway(t *testing.T) {
	s := redistest.Start(t)
	a, _ := joined(t, dial(t, s.Addr), "a")
	joined(t, dial(t, s.Addr), "b")
	eventually(t, "a sees both", func() bool { return a.Live() == 2 })
	s.Kill()
	if err := a.Agree(t.Context(), "hash", func(int64) {}); !errors.Is(err, cluster.ErrAlone) {
		t.Fatalf("Agree without Redis = %v; want ErrAlone", err)
	}
	if got := a.Live(); got != 2 {
		t.Errorf("Live without Redis = %d; want 2 still", got)
	}
}

func TestNode_IsAloneUntilItHears(t *testing.T) {
	n := cluster.Join(dial(t, "127.0.0.1:1"), "test", "a")
	if got := n.Live(); got != 1 {
		t.Errorf("Live = %d; want 1", got)
	}
}

func TestAgree_SameConfigSameNumber(t *testing.T) {
	s := redistest.Start(t)
	a, _ := joined(t, dial(t, s.Addr), "a")
	b, _ := joined(t, dial(t, s.Addr), "b")
	var got []int64
	for _, step := range []struct {
		n    *cluster.Node
		hash string
	}{{a, "one"}, {b, "one"}, {b, "two"}, {a, "two"}, {a, "one"}} {
		if err := step.n.Agree(t.Context(), step.hash, func(number int64) { got = append(got, number) }); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{1, 1, 2, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("numbers %v; want %v", got, want)
	}
}

func TestAgree_OneAfterTheOther(t *testing.T) {
	s := redistest.Start(t)
	var mu sync.Mutex
	inside, most, calls := 0, 0, 0
	var all sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		n, _ := joined(t, dial(t, s.Addr), id)
		all.Go(func() {
			for range 10 {
				err := n.Agree(t.Context(), id, func(int64) {
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
	n := cluster.Join(dial(t, "127.0.0.1:1"), "test", "a")
	var got []int64
	for range 2 {
		err := n.Agree(t.Context(), "hash", func(number int64) { got = append(got, number) })
		if !errors.Is(err, cluster.ErrAlone) {
			t.Fatalf("Agree = %v; want ErrAlone", err)
		}
	}
	if want := []int64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("numbers %v; want %v", got, want)
	}
}
