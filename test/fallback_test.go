package test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// startSteadyLoad asks each of nodes for one phone, about every 80 ms from two clients,
// until the test calls what it returns. It asks slowly enough to leave the
// machine to others, and fast enough to want all that there is to have.
func startSteadyLoad(t *testing.T, nodes []*weir) (stop func()) {
	t.Helper()
	return keepAsking(t, 2*len(nodes), 80*time.Millisecond, func(i int, c *http.Client) {
		r, err := http.NewRequest(http.MethodPost, nodes[i/2].URL+"/v1/sms/send", nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("X-Phone", "p")
		res, err := c.Do(r)
		if err != nil {
			t.Errorf("a request failed: %v", err)
			return
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	})
}

// A grantLog is what the logs of all nodes say together.
type grantLog struct {
	granted []time.Time // when, in order
	local   int         // of these, without Redis
	slowest time.Duration
}

func readGrants(t *testing.T, nodes []*weir) grantLog {
	t.Helper()
	var a grantLog
	for _, w := range nodes {
		for _, l := range w.log.Lines() {
			if l.Text("message") != "request" {
				continue
			}
			ms, err := strconv.ParseFloat(l.Text("duration_ms"), 64)
			check(t, err)
			a.slowest = max(a.slowest, time.Duration(ms*float64(time.Millisecond)))
			if l.Text("status") != "200" {
				continue
			}
			at, err := time.Parse(time.RFC3339, l.Text("time"))
			check(t, err)
			a.granted = append(a.granted, at)
			if l.Text("fallback") == "local" {
				a.local++
			}
		}
	}
	slices.SortFunc(a.granted, time.Time.Compare)
	return a
}

// most is how many were granted in the fullest stretch of so long that begins
// between from and to.
func (g grantLog) most(length time.Duration, from, to time.Time) (most int) {
	for i, at := range g.granted {
		if at.Before(from) || at.After(to) {
			continue
		}
		n := 0
		for n < len(g.granted)-i && g.granted[i+n].Sub(at) < length {
			n++
		}
		most = max(most, n)
	}
	return most
}

// between is how many were granted from one time to another.
func (g grantLog) between(from, to time.Time) (n int) {
	for _, at := range g.granted {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// Four nodes that lose Redis for three windows, under more load than the limit
// lets through, grant what the limit says: what each had before counts against
// its share, and what it granted meanwhile is counted when Redis is back.
func TestFallback_OutageDoesNotOpenAFreshLimit(t *testing.T) {
	t.Parallel()
	const (
		rate   = 40
		window = 6 * time.Second
		long   = 18 * time.Second
	)
	for name, fault := range map[string]struct{ cut, heal func(*redistest.Server) }{
		"stopped": {func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) }, func(s *redistest.Server) { s.Signal(syscall.SIGCONT) }},
		"killed":  {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			// An answer that a busy machine delays is an outage for one node alone, whose share the others do not know.
			config := strings.Replace(redisYAML(server.Addr), "5s", "500ms", 1) + smsYAML(fmt.Sprintf("%d/%s", rate, window), ", on_store_failure: local")
			nodes := make([]*weir, 4)
			for i := range nodes {
				nodes[i] = start(t, config)
			}
			waitForMembership(t, server.Addr, len(nodes))
			began := time.Now()
			stop := startSteadyLoad(t, nodes)
			waitSince(t, began, window)
			cut := time.Now()
			fault.cut(server)
			waitSince(t, cut, long)
			fault.heal(server)
			healed := time.Now()
			rdb := redisClient(t, server.Addr)
			await.Until(t, "Redis decides again", func() bool { return len(redisKeys(t, rdb, "*:permits")) > 0 })
			waitSince(t, healed, 2*window)
			stop()

			a := readGrants(t, nodes)
			// The log tells when a request ended; it was granted since it began.
			near := max(150*time.Millisecond, a.slowest)
			if got := a.most(window-near, cut.Add(-window), healed); got > rate*11/10 {
				t.Errorf("%d grants within %v around the outage, want at most %d and a tenth", got, window, rate)
			}
			without := a.between(cut, cut.Add(long)) // it is away for as long as it takes to come back besides
			if windows := int((long + window - 1) / window); without > rate*windows*11/10 {
				t.Errorf("%d grants in the %v without Redis, want at most %d and a tenth", without, long, rate*windows)
			}
			if got := a.most(window-near, healed, healed.Add(window)); got > rate {
				t.Errorf("%d grants within %v after the outage, want at most %d", got, window, rate)
			}
			if want := rate * int(long/window); a.local < want/2 {
				t.Errorf("%d grants by the nodes themselves in %v, want about %d", a.local, long, want)
			}
			if a.slowest > long/2 {
				t.Errorf("the slowest request took %v, want at most %v and what a busy machine adds", a.slowest, decisionTime)
			}
			t.Logf("before %d, without Redis %d in %v, around %d, after %d of %d in %v; %d by the nodes; slowest %v", a.between(began, cut), without, long,
				a.most(window-near, cut.Add(-window), healed), a.most(window-near, healed, healed.Add(window)), rate, window, a.local, a.slowest)
		})
	}
}

// waitSince waits until so long has passed since began.
func waitSince(t *testing.T, began time.Time, long time.Duration) {
	t.Helper()
	await.Within(t, long+testTimeout, "time passes", func() bool { return time.Since(began) > long })
}

// redisKeys are the keys in Redis that match.
func redisKeys(t *testing.T, rdb *redis.Client, pattern string) []string {
	t.Helper()
	names, err := rdb.Keys(t.Context(), pattern).Result()
	check(t, err)
	return names
}

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
		wantStatuses(t, route+": the second is refused and bans", nodes[0].ask(route, "p", 2), 200, 429)
	}
	redisClient(t, server.Addr).Ping(t.Context()) // what was published before is sent
	server.Signal(syscall.SIGSTOP)
	for i, w := range nodes {
		for _, route := range []string{"all", "log"} {
			wantStatuses(t, fmt.Sprintf("node %d, %s, a key that is banned", i, route), w.ask(route, "p", 2), 429, 429)
			wantStatuses(t, fmt.Sprintf("node %d, %s, another key", i, route), w.ask(route, "other", 1), 200)
		}
		want := []int{200}
		if i == 0 {
			want = []int{429}
		}
		wantStatuses(t, fmt.Sprintf("node %d, where each node counts by itself", i), w.ask("own", "p", 1), want...)
	}
}
