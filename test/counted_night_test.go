package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// countedYAML is what three nodes serve that follow Redis; send has so many codes an hour
// for each phone.
func countedYAML(redis, rate string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 200ms}\nreload: {source: redis}\n", redis) + `
keys: {phone: {from: "header:X-Phone", normalize: e164, sensitive: true}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: phone, key: phone, rates: [` + rate + `, 1000/1d]}, {name: address, key: client_ip, rate: 1000000/1h}]
  - name: verify
    match: {methods: [POST], path: /verify}
    upstream: demo
    limits: [{name: guesses, key: phone, rate: 3/1h}]
  - name: search
    match: {path: /search}
    upstream: demo
`
}

// outcomes are what a traffic program knows of the requests to one route.
type outcomes struct{ Requests, Allowed, Refused, Rejected, Unavailable int64 }

func (o *outcomes) add(more outcomes) {
	o.Requests, o.Allowed, o.Refused = o.Requests+more.Requests, o.Allowed+more.Allowed, o.Refused+more.Refused
	o.Rejected, o.Unavailable = o.Rejected+more.Rejected, o.Unavailable+more.Unavailable
}

// A counter counts what its clients were answered.
type counter struct {
	mu      sync.Mutex // guards what follows
	routes  map[string]outcomes
	limits  map[string]int64 // refusals by ROUTE.LIMIT
	late    int64            // answers of the node that is killed, since it was known to have reported
	refused []string         // ids of refused requests, oldest first
}

// count counts the response to a request for a route. Its node is doomed if it will be killed.
func (c *counter) count(route string, response *http.Response, body []byte, isDoomed isDoomed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := outcomes{Requests: 1}
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		one.Refused = 1
		var problem struct {
			Violated []string `json:"violated-policies"`
		}
		_ = json.Unmarshal(body, &problem) // nothing is counted then, which is seen
		limits := map[string]bool{}
		for _, policy := range problem.Violated {
			name, _, _ := strings.Cut(policy, "-")
			limits[route+"."+name] = true
		}
		for name := range limits {
			c.limits[name]++
		}
		if !isDoomed {
			c.refused = append(c.refused, response.Header.Get("X-Request-Id"))
		}
	case response.StatusCode == http.StatusOK:
		one.Allowed = 1
	case response.StatusCode == http.StatusServiceUnavailable:
		one.Unavailable = 1
	default:
		one.Rejected = 1
	}
	if isDoomed {
		c.late++
	}
	sum := c.routes[route]
	sum.add(one)
	c.routes[route] = sum
}

// An isDoomed says that a node will be killed.
type isDoomed bool

// A caller is one client of one node.
type caller struct {
	t        *testing.T
	client   *http.Client
	url      string
	isDoomed isDoomed
	random   *rand.Rand
}

// ask sends one request of a mixture: codes, some to numbers that ask for many, guesses,
// searches, and what is not valid.
func (c *caller) ask(counted *counter) {
	route, method, path, phone := "send", "POST", "/send", fmt.Sprintf("+8613800%06d", c.random.IntN(1000))
	switch n := c.random.IntN(20); {
	case n < 5:
		phone = fmt.Sprintf("+86138001380%02d", c.random.IntN(4))
	case n < 7:
		route, path = "verify", "/verify"
	case n < 9:
		route, method, path, phone = "search", "GET", "/search?q=a", ""
	case n == 9:
		phone = "+86" // 400
	case n == 10:
		route, path = "none", "/nothing" // 404
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, nil)
	if err != nil {
		c.t.Error(err)
		return
	}
	if phone != "" {
		r.Header.Set("X-Phone", phone)
	}
	c.send(r, route, counted)
}

// send sends a request for a route, and counts the response.
func (c *caller) send(r *http.Request, route string, counted *counter) {
	response, err := c.client.Do(r)
	if err != nil {
		return // the node is dead
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		counted.count(route, response, body, c.isDoomed)
	}
}

// total returns how many requests were answered.
func (c *counter) total() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.routes {
		n += of.Requests
	}
	return n
}

// A countedNight is three nodes, their traffic and what goes wrong.
type countedNight struct {
	t       *testing.T
	redis   *redistest.Server
	nodes   []*weir
	doomed  *weir // leads, and is killed
	counted counter
	phase   time.Duration
}

// run lets clients of all nodes ask for the time of a phase while event happens.
func (n *countedNight) run(phase string, event func()) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), n.phase)
	defer cancel()
	before := n.counted.total()
	var callers []*caller
	for i, w := range n.nodes {
		for j := range uint64(2) {
			callers = append(callers, &caller{n.t, nil, w.URL, w == n.doomed, rand.New(rand.NewPCG(uint64(i), uint64(before)+j))})
		}
	}
	stop := keepAsking(n.t, len(callers), 30*time.Millisecond, func(i int, c *http.Client) {
		callers[i].client = c
		callers[i].ask(&n.counted)
	})
	event()
	<-ctx.Done()
	stop()
	n.t.Logf("%-32s %6d requests", phase, n.counted.total()-before)
}

// A comparison is one number that operators see, beside that of the traffic program. slack is how
// much it may be lower: what a killed node had not reported.
type comparison struct {
	what              string
	shown, want, less int64
}

// compare logs all numbers and fails if one is wrong.
func (n *countedNight) compare(all []comparison) {
	n.t.Helper()
	wrong := 0
	for _, c := range all {
		verdict := ""
		if c.shown > c.want || c.shown < c.want-c.less {
			verdict, wrong = "  WRONG", wrong+1
		}
		n.t.Logf("%-48s %7d %7d%s", c.what, c.shown, c.want, verdict)
	}
	if wrong > 0 {
		n.t.Errorf("%d of %d numbers are not what the clients counted", wrong, len(all))
	}
}

// statistics returns the counts of all minutes by route, and the refusals by limit.
func (n *countedNight) statistics(w *weir) (routes map[string]outcomes, limits map[string]int64) {
	n.t.Helper()
	var got struct {
		Minutes []struct {
			Routes []struct {
				Route string
				outcomes
				Limits []struct {
					Limit   string
					Refused int64
				}
			}
		}
	}
	w.getAdmin("/api/v1/statistics?minutes=120", &got)
	routes, limits = map[string]outcomes{}, map[string]int64{}
	for _, m := range got.Minutes {
		for _, r := range m.Routes {
			sum := routes[r.Route]
			sum.add(r.outcomes)
			routes[r.Route] = sum
			for _, l := range r.Limits {
				limits[r.Route+"."+l.Limit] += l.Refused
			}
		}
	}
	return routes, limits
}

// Three nodes serve a night with an outage of Redis, a stricter configuration, two operators at once
// and a leader that is killed. What the nodes then tell of it is what the clients counted, except for
// what the dead node had not reported. WEIR_NIGHT_SECONDS is how long it takes, 6 by default; with -v it
// prints each number beside that of the clients.
func TestNight_NumbersAreThoseOfTheClients(t *testing.T) {
	t.Parallel()
	seconds, _ := strconv.Atoi(cmp.Or(os.Getenv("WEIR_NIGHT_SECONDS"), "6"))
	n := &countedNight{t: t, redis: redistest.Start(t), phase: time.Duration(seconds) * time.Second / 6}
	n.counted = counter{routes: map[string]outcomes{}, limits: map[string]int64{}}
	for range 3 {
		n.nodes = append(n.nodes, start(t, countedYAML(n.redis.Addr, "5/1h")))
	}
	waitForMembership(t, n.redis.Addr, 3)
	var l leadership
	await.Until(t, "a node leads", func() bool { l = n.nodes[0].leadership(); return l.Node != "" })
	for _, w := range n.nodes {
		if w.leadership().Self == l.Node {
			n.doomed = w
		}
	}
	asked := n.nodes[slices.IndexFunc(n.nodes, func(w *weir) bool { return w != n.doomed })]

	n.run("at rest", func() {})
	n.run("Redis hangs", func() { n.redis.Signal(syscall.SIGSTOP) })
	n.redis.Signal(syscall.SIGCONT)
	n.run("Redis is back", func() {})
	n.run("a stricter rate is pushed", func() {
		dir := t.TempDir()
		write(t, dir+"/weir.yaml", countedYAML(n.redis.Addr, "3/1h")+weirtest.Listeners)
		if code, stdout, stderr := asked.admin(dir, "push", "weir.yaml"); code != 0 {
			t.Errorf("push exits %d: %s%s", code, stdout, stderr)
		}
	})
	n.run("two operators", func() {
		var operators sync.WaitGroup
		operators.Go(func() { asked.keys("ban", "phone=+8613800138000", "--for", "1h", "--reason", "anna") })
		operators.Go(func() { asked.keys("reset", "phone=+8613800138001", "--reason", "ben") })
		operators.Wait()
	})
	n.tells(asked, 0)
	n.counted.late = 0
	n.run("the leader is killed", func() { n.doomed.Kill() })
	n.tells(asked, n.counted.late)
}

// tells compares what a node tells with what was counted, of which a killed node may have lost some.
func (n *countedNight) tells(asked *weir, lost int64) {
	n.t.Helper()
	await.Until(n.t, "all is reported", func() bool {
		routes, _ := n.statistics(asked)
		var sum int64
		for _, r := range routes {
			sum += r.Requests
		}
		return sum >= n.counted.total()-lost
	})
	var all []comparison
	routes, limits := n.statistics(asked)
	for _, name := range slices.Sorted(maps.Keys(n.counted.routes)) {
		got, want := routes[name], n.counted.routes[name]
		all = append(all,
			comparison{name + ": requests", got.Requests, want.Requests, lost}, comparison{name + ": allowed", got.Allowed, want.Allowed, lost},
			comparison{name + ": refused", got.Refused, want.Refused, lost}, comparison{name + ": rejected", got.Rejected, want.Rejected, lost},
			comparison{name + ": unavailable", got.Unavailable, want.Unavailable, lost})
	}
	for _, name := range slices.Sorted(maps.Keys(n.counted.limits)) {
		all = append(all, comparison{name + ": refused", limits[name], n.counted.limits[name], lost})
	}
	if !n.doomed.Ended() { // a dead node tells nobody what its top keys were
		for _, l := range asked.topAsJSON("--minutes", "15").Top.Limits {
			name := l.Route + "." + l.Limit
			if want := n.counted.limits[name]; n.phase < time.Minute { // else some of it is older
				all = append(all, comparison{"top: " + name + ": refused", int64(l.Refused.Total), want, 0})
			}
		}
	}
	recent := n.counted.refused[max(len(n.counted.refused)-200, 0):]
	found := 0
	for _, id := range recent {
		var got struct{ Decisions []struct{ Status int } }
		asked.getAdmin("/api/v1/decisions?request_id="+id, &got)
		if len(got.Decisions) == 1 && got.Decisions[0].Status == http.StatusTooManyRequests {
			found++
		}
	}
	all = append(all, comparison{"refusals explained by id", int64(found), int64(len(recent)), 0})
	n.compare(all)
}
