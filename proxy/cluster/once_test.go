package cluster_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/redistest"
)

// claim claims name with value, and returns what was there.
func claim(t *testing.T, o *cluster.Once, name, value string) string {
	t.Helper()
	found, err := o.Claim(t.Context(), name, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return string(found)
}

func put(t *testing.T, o *cluster.Once, name, value string) {
	t.Helper()
	if err := o.Put(t.Context(), name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// The first claim wins, on whichever node; what was put is found by all until it is removed.
func TestOnce_TheFirstClaimWins(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	alone := cluster.NewOnce(nil, "")
	for name, nodes := range map[string][2]*cluster.Once{"memory": {alone, alone}, "redis": {cluster.NewOnce(rdb, "test"), cluster.NewOnce(rdb, "test")}} {
		t.Run(name, func(t *testing.T) {
			near, far := nodes[0], nodes[1]
			if first, second, other := claim(t, near, "a", "1"), claim(t, far, "a", "2"), claim(t, far, "b", "3"); first != "" || second != "1" || other != "" {
				t.Errorf("found %q, %q and %q; want nothing, 1, nothing", first, second, other)
			}
			put(t, near, "a", "done")
			if got := claim(t, far, "a", "4"); got != "done" {
				t.Errorf("found %q; want done", got)
			}
			put(t, near, "a", "")
			if got := claim(t, far, "a", "5"); got != "" {
				t.Errorf("found %q after it was removed", got)
			}
		})
	}
	rdb.Close()
	if _, err := cluster.NewOnce(rdb, "test").Claim(t.Context(), "a", nil); err == nil {
		t.Error("a claim was made without redis")
	}
}

// In Redis both have the same lives as in memory.
func TestOnce_ClaimsAndValuesExpire(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	shared := cluster.NewOnce(rdb, "test")
	for value, want := range map[string]time.Duration{"": time.Minute, "done": 24 * time.Hour} {
		id := "id-" + value // in either order
		claim(t, shared, id, "1")
		if value != "" {
			put(t, shared, id, value)
		}
		if left := rdb.TTL(t.Context(), "test:{cluster}:once:"+id).Val(); left > want || left < want-time.Minute/2 {
			t.Errorf("%q is kept for %v; want %v", value, left, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		o := cluster.NewOnce(nil, "")
		claim(t, o, "a", "1")
		claim(t, o, "b", "1")
		put(t, o, "b", "done")
		time.Sleep(time.Minute)
		if a, b := claim(t, o, "a", "2"), claim(t, o, "b", "2"); a != "" || b != "done" {
			t.Errorf("after a minute found %q and %q; want nothing and done", a, b)
		}
		time.Sleep(24 * time.Hour)
		if b := claim(t, o, "b", "2"); b != "" {
			t.Errorf("after a day found %q", b)
		}
		for i := range 1000 {
			claim(t, o, fmt.Sprint(i), "1")
		}
		put(t, o, "a", "late")
		if a, last := claim(t, o, "a", "3"), claim(t, o, "999", "3"); a != "" || last != "1" {
			t.Errorf("found %q and %q; want the oldest of more than 1000 forgotten", a, last)
		}
	})
}
