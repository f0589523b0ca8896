package test

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// heartbeats are the nodes that Redis knows of, and when each was last heard.
func heartbeats(t *testing.T, rdb *redis.Client) map[string]float64 {
	t.Helper()
	nodes, err := rdb.ZRangeWithScores(t.Context(), "weir:{cluster}:nodes", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, n := range nodes {
		out[fmt.Sprint(n.Member)] = n.Score
	}
	return out
}

// waitForNodes waits until Redis knows of n nodes.
func waitForNodes(t *testing.T, addr string, n int) {
	t.Helper()
	rdb := redisClient(t, addr)
	await.Until(t, "all nodes are heard", func() bool { return len(heartbeats(t, rdb)) == n })
}

// waitForMembership waits until n nodes have been heard, and each of them once more:
// then each has been told how many there are.
func waitForMembership(t *testing.T, addr string, n int) {
	t.Helper()
	rdb := redisClient(t, addr)
	var first map[string]float64
	await.Until(t, "all nodes are heard", func() bool {
		first = heartbeats(t, rdb)
		return len(first) == n
	})
	await.Until(t, "all nodes are heard again", func() bool {
		again := 0
		for id, at := range heartbeats(t, rdb) {
			if at > first[id] {
				again++
			}
		}
		return again == n
	})
}

// While Redis is away, what all nodes together let through is the limit.
func TestCluster_LocalSharesAddUpToTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisDefaultYAML(server.Addr) + smsYAML("6/1h", ", on_store_failure: local")
	nodes := []*weir{start(t, config), start(t, config)}
	waitForMembership(t, server.Addr, len(nodes))
	server.Kill()
	for i, w := range nodes {
		if got := w.statuses("p", 5); !slices.Equal(got, []int{200, 200, 200, 429, 429}) {
			t.Errorf("node %d of 2 answers %v by itself, want half of 6", i, got)
		}
	}
}

// A node that ends in peace is not waited for: the others have its share at the
// next sign of life.
func TestCluster_NodeThatEndsIsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("6/1h", "")
	one, other := start(t, config), start(t, config)
	waitForMembership(t, server.Addr, 2)
	one.Signal(syscall.SIGTERM)
	if code := one.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got := heartbeats(t, redisClient(t, server.Addr)); len(got) != 1 {
		t.Errorf("after one of two has ended Redis knows of %v", got)
	}
	other.statuses("p", 1)
}

// Two nodes that take up one configuration call it by one number, and a later
// one by a higher.
func TestCluster_NodesAgreeOnGenerations(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := func(rate string) string { return redisYAML(server.Addr) + smsYAML(rate, "") }
	one, other := start(t, config("1/1h")), start(t, config("1/1h"))
	first := one.generation()
	if got := other.generation(); got != first {
		t.Errorf("one configuration is generation %d and %d", first, got)
	}
	for n := 2; n <= 4; n++ {
		one.edit(config(fmt.Sprintf("%d/1h", n)))
		other.edit(config(fmt.Sprintf("%d/1h", n)))
		await.Until(t, "both serve the edit", func() bool {
			return one.generation() == first+n-1 && other.generation() == first+n-1
		})
	}
}

// An operator must be able to change the rules while Redis is away.
func TestCluster_ReloadsWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*redistest.Server){
		"killed":  (*redistest.Server).Kill,
		"stopped": func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			config := redisDefaultYAML(server.Addr) + policies()
			w := start(t, config)
			fault(server)
			before := w.generation()
			w.edit(config + "  - {name: late, match: {path: /late}, upstream: demo}\n")
			await.Until(t, "the edit is served", func() bool { return w.generation() > before })
			if status, _ := w.get(w.URL + "/late"); status != http.StatusOK {
				t.Errorf("the new route is answered %d, want 200", status)
			}
		})
	}
}

// What was used is used, whoever restarts.
func TestCluster_CountsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("3/1h", "")
	w := start(t, config)
	w.statuses("p", 2)
	w.Kill()
	if got := start(t, config).statuses("p", 2); !slices.Equal(got, []int{200, 429}) {
		t.Errorf("after 2 of 3 by a killed process the next answers %v, want 200 and 429", got)
	}
}

// A node whose file differs is named by all, and once they agree that is over.
func TestCluster_TellsOfNodesThatDiffer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := func(rate string) string { return redisYAML(server.Addr) + smsYAML(rate, "") }
	one, other := start(t, config("1/1h")), start(t, config("2/1h"))
	const drift = "weir_cluster_config_drift"
	await.Within(t, 3*testTimeout, "both tell of the other", func() bool { return one.metric(drift) == 1 && other.metric(drift) == 1 })
	if got := one.WaitForLog("config drift; other nodes serve another configuration", nil).Text("nodes"); got != "1" {
		t.Errorf("the log says %s nodes, want 1", got)
	}
	if got := one.metric("weir_cluster_nodes"); got != 2 {
		t.Errorf("weir_cluster_nodes is %v, want 2", got)
	}
	other.edit(config("1/1h"))
	await.Until(t, "nobody differs any more", func() bool { return one.metric(drift) == 0 && other.metric(drift) == 0 })
	one.WaitForLog("config drift ended", nil)
	if said := one.log.Count("config drift; other nodes serve another configuration"); said != 1 {
		t.Errorf("said %d times, want once", said)
	}
}

// A node that reloaded while Redis was away makes that known when it is back.
func TestCluster_ReturnsAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewFaultProxy(t, server.Addr)
	w := start(t, redisDefaultYAML(proxy.Addr)+smsYAML("1/1h", ""))
	rdb := redisClient(t, server.Addr)
	known := func() string {
		return rdb.HGet(t.Context(), "weir:{cluster}:config", "number").Val()
	}
	if got := known(); got != "1" {
		t.Fatalf("Redis knows of generation %q, want 1", got)
	}
	proxy.Redirect("127.0.0.1:1")
	w.edit(redisDefaultYAML(proxy.Addr) + smsYAML("2/1h", ""))
	w.WaitForLog("reloaded without the other nodes", nil)
	if got := w.generation(); got != 2 {
		t.Errorf("generation %d is served alone, want 2", got)
	}
	proxy.Redirect(server.Addr)
	await.Until(t, "Redis knows of the edit", func() bool { return known() == "2" })
	if got := w.generation(); got != 2 {
		t.Errorf("generation %d is served, want 2", got)
	}
}
