package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/redistest"
)

// Counted finds what the store writes, each key once, under the limits that are asked
// for and our prefix, and says when it is a sample.
func TestCounted_IsWhatTheStoreWrites(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	n, _ := join(t, rdb, "a")
	take := func(prefix, limit string, keys int) {
		t.Helper()
		store := redisstore.New(rdb, redisstore.Options{Prefix: prefix, Timeout: 5 * time.Second, CachedRefusals: -1})
		defer store.Close()
		for i := range keys {
			claims := []limiter.Claim{{Limit: &limiter.Limit{Name: limit, Rate: limiter.Rate{Count: 3, Window: time.Hour}}, Key: limiter.KeyOf(fmt.Sprint(i)), Cost: 1}}
			var d limiter.Decision
			if err := store.Take(t.Context(), claims, &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	take("test", "send.phone:1h", 3)
	take("test", "send.ip:1h", 2)
	take("other", "send.phone:1h", 4)
	all, whole, err := n.Counted(t.Context(), map[string]bool{"send.phone:1h": true, "send.gone:1h": true})
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

	pipe := rdb.Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), "test:{"+limiter.KeyOf("many", fmt.Sprint(i)).String()+"}:send.phone:1h:value", 1, time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, whole, err = n.Counted(t.Context(), map[string]bool{"send.phone:1h": true})
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
			l := &limiter.Limit{Name: name, Algorithm: a, Rate: limiter.Rate{Count: 1, Window: time.Hour}}
			if a == limiter.Cooldown {
				l.Steps = []time.Duration{time.Second}
			}
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
	n := cluster.Join(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	if _, _, err := n.Counted(t.Context(), nil); err == nil || err.Error()[:17] != "look for counts: " {
		t.Errorf("Counted without Redis = %v", err)
	}
}
