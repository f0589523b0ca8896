package test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// threeShares starts three nodes that know each other, and that hear each other's
// changes.
func threeShares(t *testing.T, routes string) (server *redistest.Server, nodes []*weir) {
	t.Helper()
	server = redistest.Start(t)
	config := fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 1s}\n", server.Addr) + routes
	for range 3 {
		nodes = append(nodes, start(t, config))
	}
	waitForMembership(t, server.Addr, len(nodes))
	rdb := redisClient(t, server.Addr)
	await.Until(t, "all nodes are subscribed", func() bool {
		return rdb.PubSubNumSub(t.Context(), "weir:freed").Val()["weir:freed"] == int64(len(nodes))
	})
	return server, nodes
}

// passed is how many of n requests for phone a node lets pass.
func (w *weir) passed(route, phone string, n int) (passed int) {
	w.t.Helper()
	for _, status := range w.ask(route, phone, n) {
		if status == 200 {
			passed++
		}
	}
	return passed
}

// Without Redis a node grants its share of a limit, less what it has granted before: a
// node does not know what others have granted since it last saw the key. So a limit of L
// permits on n nodes lets through at most L + (n-1) x share, which is reached if one node
// had granted all, and L if each had granted its share.
func TestShare_BoundOfAnOutage(t *testing.T) {
	t.Parallel()
	limits := map[string]struct {
		limit int
		yaml  string
	}{
		"token-bucket": {10, "rate: 10/1h"},
		"sliding-log":  {10, "rate: 10/1h, algorithm: sliding_log"},
		"fixed-window": {10, "rate: 10/1h, algorithm: fixed_window"},
		"gcra":         {10, "rate: 10/1d, algorithm: gcra, burst: 10"},
		"one":          {1, "rate: 1/1h"},
		"cooldown":     {1, "cooldown: [1h]"},
	}
	routes := "upstreams: {demo: echo}\nroutes:\n"
	for name, l := range limits {
		routes += fmt.Sprintf("  - {name: %[1]s, match: {path: /%[1]s}, upstream: demo, limits: [{name: phone, key: 'header:X-Phone', %[2]s}]}\n", name, l.yaml)
	}
	server, nodes := threeShares(t, routes)
	for name, l := range limits {
		if got := nodes[0].passed(name, "sticky", l.limit); got != l.limit {
			t.Fatalf("%s: %d of %d pass", name, got, l.limit)
		}
		for i := range l.limit {
			nodes[i%len(nodes)].passed(name, "spread", 1)
		}
	}
	server.Signal(syscall.SIGSTOP)
	await.Until(t, "all nodes have given Redis up", func() bool {
		return !slices.ContainsFunc(nodes, func(w *weir) bool {
			w.passed("one", "other", 1)
			return w.checks()["store"] == "ok"
		})
	})
	for name, l := range limits {
		share := max(1, l.limit/len(nodes))
		for phone, want := range map[string]int{
			"sticky": l.limit + (len(nodes)-1)*share,
			"spread": l.limit,
			"new":    len(nodes) * share,
		} {
			got := 0
			if phone != "new" {
				got = l.limit
			}
			for _, w := range nodes {
				got += w.passed(name, phone, l.limit+1)
			}
			if phone == "spread" && l.limit == 1 {
				want = len(nodes) // only one node can have granted it
			}
			if got != want {
				t.Errorf("%s: %d requests of the key %q pass before and in the outage, want %d", name, got, phone, want)
			}
		}
	}
}

// A key that one node has banned for its refusals is banned on all nodes that were up
// then, also in an outage before they have ever seen it. A limit that each node counts by
// itself bans on that node alone.
func TestShare_BansHoldOnEveryNode(t *testing.T) {
	t.Parallel()
	const penalty = "rate: 1/1h, penalty: {ban: 2h, after: 1}"
	server, nodes := threeShares(t, fmt.Sprintf(`upstreams: {demo: echo}
routes:
  - {name: all, match: {path: /all}, upstream: demo, limits: [{name: phone, key: 'header:X-Phone', %[1]s}]}
  - {name: log, match: {path: /log}, upstream: demo, limits: [{name: phone, key: 'header:X-Phone', %[1]s, algorithm: sliding_log}]}
  - {name: own, match: {path: /own}, upstream: demo, limits: [{name: phone, key: 'header:X-Phone', %[1]s, scope: per_instance}]}
`, penalty))
	for _, route := range []string{"all", "log", "own"} {
		if got := nodes[0].ask(route, "p", 2); !slices.Equal(got, []int{200, 429}) {
			t.Fatalf("%s: %v; want the second to be refused and to ban", route, got)
		}
	}
	redisClient(t, server.Addr).Ping(t.Context()) // what was published before is sent
	server.Signal(syscall.SIGSTOP)
	for i, w := range nodes {
		for _, route := range []string{"all", "log"} {
			if got := w.ask(route, "p", 2); !slices.Equal(got, []int{429, 429}) {
				t.Errorf("node %d answers %v on %s for a key that is banned, want 429", i, got, route)
			}
			if got := w.ask(route, "other", 1); !slices.Equal(got, []int{200}) {
				t.Errorf("node %d answers %v on %s for another key, want 200", i, got, route)
			}
		}
		want := []int{200}
		if i == 0 {
			want = []int{429}
		}
		if got := w.ask("own", "p", 1); !slices.Equal(got, want) {
			t.Errorf("node %d answers %v where each node counts by itself, want %v", i, got, want)
		}
	}
}
