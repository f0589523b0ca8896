package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

const (
	// decisionTime is redis.timeout when the configuration does not say.
	decisionTime = 50 * time.Millisecond
	// slack is what a busy machine may add to an answer. An outage lasts longer,
	// so that a request that waits for Redis is found out.
	slack = 2500 * time.Millisecond
	// outage is how long Redis is away.
	outage = 5 * time.Second
)

// policies is one route for each way to go on without a store, and one without limits.
func policies() string {
	out := "upstreams: {demo: echo}\nroutes:\n  - {name: free, match: {path: /free}, upstream: demo}\n"
	for _, policy := range []string{"allow", "deny", "local"} {
		out += fmt.Sprintf(`  - name: %[1]s
    match: {path: /%[1]s}
    upstream: demo
    limits: [{name: phone, key: "header:X-Phone", rate: 3/1h, on_store_failure: %[1]s}]
`, policy)
	}
	return out
}

// ask sends n requests for phone to the route of a policy.
func (w *weir) ask(policy, phone string, n int) []int {
	w.t.Helper()
	out := make([]int, n)
	for i := range out {
		out[i], _ = do(w.t, http.MethodPost, w.URL+"/"+policy, http.Header{"X-Phone": {phone}})
	}
	return out
}

// A fault takes a Redis away. What heals it also waits for that; over, unless nil, is
// closed if it ends by itself.
type fault func(t *testing.T, s *redistest.Server) (heal func(), over <-chan struct{})

func faults() map[string]fault {
	return map[string]fault{
		"asleep": func(t *testing.T, s *redistest.Server) (func(), <-chan struct{}) {
			c := redisClient(t, s.Addr)
			over := make(chan struct{})
			go func() {
				defer close(over)
				c.Do(t.Context(), "DEBUG", "SLEEP", outage.Seconds()+1)
			}()
			return func() { <-over }, over
		},
		"stopped": func(t *testing.T, s *redistest.Server) (func(), <-chan struct{}) {
			s.Signal(syscall.SIGSTOP)
			return func() { s.Signal(syscall.SIGCONT) }, nil
		},
		"killed": func(t *testing.T, s *redistest.Server) (func(), <-chan struct{}) {
			s.Kill()
			return s.Restart, nil
		},
	}
}

func TestOutage_EachPolicyDoesWhatItSays(t *testing.T) {
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--enable-debug-command", "yes")
			w := start(t, redisDefaultYAML(server.Addr)+policies())
			for _, policy := range []string{"allow", "deny", "local"} {
				settled(t, w, policy)
			}
			var loads []*load
			for _, policy := range []string{"allow", "deny", "local"} {
				loads = append(loads, startLoad(t, 2, loadRequest{w.URL + "/" + policy, newPhones("load")}))
			}
			for _, l := range loads {
				l.waitForMore(t, 20)
			}

			free := startLoad(t, 2, loadRequest{w.URL + "/free", newPhones("free")})
			heal, began := fault.under(t, server, w)
			await.Until(t, "the outage has lasted", func() bool { return time.Since(began) > outage })
			heal()
			n, got := 0, []int(nil)
			await.Until(t, "Redis limits again", func() bool { // on a busy machine an answer may still be late
				n++
				got = w.ask("deny", fmt.Sprint("after", n), 4)
				return slices.Equal(got, []int{200, 200, 200, 429})
			}, lazily(func() string { return fmt.Sprintf("the last answers were %v", got) }))
			free.stop()
			for _, l := range loads {
				l.stop()
				wantSwift(t, l, free)
			}
		})
	}
}

// under takes Redis away and checks what weir answers then. An outage that ends by
// itself before all was asked, because the machine is busy, is tried once more.
func (f fault) under(t *testing.T, server *redistest.Server, w *weir) (heal func(), began time.Time) {
	t.Helper()
	for n := 0; ; n++ {
		heal, over := f(t, server)
		began = time.Now()
		await.Until(t, "weir finds out", func() bool {
			return slices.Equal(w.ask("deny", "x", 1), []int{503}) || closed(over)
		})
		problems := underPolicies(t, w, fmt.Sprint("during", n))
		if closed(over) && n < 10 {
			continue
		}
		for _, problem := range problems {
			t.Error(problem)
		}
		return heal, began
	}
}

// closed reports whether c is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// settled waits until decisions come from Redis: a connection stands.
func settled(t *testing.T, w *weir, policy string) {
	t.Helper()
	n := 0
	await.Until(t, "Redis decides", func() bool {
		n++
		return w.ask("deny", fmt.Sprint(policy, n), 1)[0] == http.StatusOK
	})
}

// wantPolicies asks every policy while Redis is away.
func wantPolicies(t *testing.T, w *weir) {
	t.Helper()
	for _, problem := range underPolicies(t, w, "during") {
		t.Error(problem)
	}
}

// underPolicies asks every policy for a phone while Redis is away, and returns what is
// not as it should be.
func underPolicies(t *testing.T, w *weir, phone string) (problems []string) {
	t.Helper()
	for policy, want := range map[string][]int{
		"allow": {200, 200, 200, 200, 200, 200},
		"deny":  {503, 503, 503, 503, 503, 503},
		"local": {200, 200, 200, 429, 429, 429}, // the only node's share is all of it
	} {
		if got := w.ask(policy, phone, 6); !slices.Equal(got, want) {
			problems = append(problems, fmt.Sprintf("%s answers %v while Redis is away, want %v", policy, got, want))
		}
		if w.metric(fmt.Sprintf("weir_store_fallback_total{policy=%q}", policy)) < 6 {
			problems = append(problems, fmt.Sprintf("fallbacks to %s are not counted", policy))
		}
	}
	if got := w.checks()["store"]; got == "ok" || got == "" {
		problems = append(problems, fmt.Sprintf("/readyz says of the store %q while Redis is away", got))
	}
	if status, _ := w.get(w.Admin + "/readyz"); status != http.StatusOK {
		problems = append(problems, fmt.Sprintf("/readyz is %d while Redis is away, want 200: requests are still served", status))
	}
	return problems
}

// wantSwift looks at the slowest answer of a load. What those of free took, which ask
// for no limit, is the machine's doing.
func wantSwift(t *testing.T, l, free *load) {
	t.Helper()
	free.mu.Lock()
	usual := free.slowest
	free.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errors) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(l.errors), l.errors[0])
	}
	if l.slowest > decisionTime+slack+usual {
		t.Errorf("the slowest answer took %v, want at most %v and what a busy machine adds; without limits it took %v", l.slowest, decisionTime, usual)
	}
	t.Logf("slowest answer %v, answers %v", l.slowest, l.answers)
}

// After an outage in which Redis hung, while nobody asked, the first request is decided by
// Redis again: what an attempt to connect came to in the outage is not its answer.
func TestOutage_FirstRequestAfterwards(t *testing.T) {
	for mode, begin := range map[string]func(t *testing.T) (redis string, signal func(syscall.Signal), serves func(testing.TB)){
		"single": func(t *testing.T) (string, func(syscall.Signal), func(testing.TB)) {
			s := redistest.Start(t)
			return fmt.Sprintf("addrs: [%q]", s.Addr), s.Signal, func(testing.TB) {}
		},
		"sentinel": func(t *testing.T) (string, func(syscall.Signal), func(testing.TB)) {
			s := redistest.StartSentinel(t)
			return fmt.Sprintf("mode: sentinel, master: %s, addrs: [%s]", s.Name, strings.Join(s.Addrs, ",")), s.Signal, func(testing.TB) {}
		},
		"cluster": func(t *testing.T) (string, func(syscall.Signal), func(testing.TB)) {
			c := redistest.StartCluster(t, 3)
			return fmt.Sprintf("mode: cluster, addrs: [%s]", strings.Join(c.Addrs(), ",")), c.Signal, c.Serves
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis, signal, serves := begin(t)
			// The timeout of a connection attempt is five times that of a decision.
			config := fmt.Sprintf("store: redis\nredis: {%s, timeout: 200ms, breaker: {after: 2}}\n", redis)
			nodes := map[string]*weir{}
			for _, policy := range []string{"allow", "deny", "local"} {
				nodes[policy] = start(t, config+policies())
				settled(t, nodes[policy], policy)
				if got := nodes[policy].ask(policy, "p", 1); got[0] != 200 {
					t.Fatalf("%s: %v", policy, got)
				}
			}
			signal(syscall.SIGSTOP)
			for policy, w := range nodes {
				w.ask(policy, "other", 3) // on the old connection, on a new one, and not at all
			}
			waitSince(t, time.Now(), 3*time.Second/2) // all attempts have failed
			signal(syscall.SIGCONT)
			serves(t)
			waitSince(t, time.Now(), 6*time.Second) // longer than breaker.rest and the time for reports
			for policy, w := range nodes {
				before := len(w.log.Lines())
				if got := w.ask(policy, "p", 3); !slices.Equal(got, []int{200, 200, 429}) {
					t.Errorf("%s: 3 requests, of which 2 were left, get %v", policy, got)
				}
				for _, l := range w.log.Lines()[before:] {
					if l.Text("fallback") != "" {
						t.Errorf("%s: decided without Redis, which is back: %v", policy, l.Text("error"))
					}
				}
			}
		})
	}
}

func TestOutage_StartsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	w := start(t, redisDefaultYAML(server.Addr)+policies())
	if got := w.checks()["store"]; got == "ok" || got == "" {
		t.Errorf("/readyz says of the store %q, but there is none", got)
	}
	wantPolicies(t, w)

	server.Restart()
	await.Until(t, "Redis decides", func() bool { return w.ask("deny", "late", 1)[0] == http.StatusOK })
	await.Until(t, "/readyz says ok", func() bool { return w.checks()["store"] == "ok" })
}

// What is decided while Redis is away is decided as one answer, not a mix: a
// route with a limit that denies lets nobody pass.
func TestOutage_DenyWinsInOneRoute(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	w := start(t, redisDefaultYAML(server.Addr)+`upstreams: {demo: echo}
routes:
  - match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: a, key: "header:X-Phone", rate: 5/1h, on_store_failure: allow}
      - {name: b, key: "header:X-Phone", rate: 5/1h, on_store_failure: deny}
`)
	status, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"1"}})
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("the answer is %d %v %s, want 503 with Retry-After", status, header, body)
	}
}

// However many limits a request has to ask about, it waits once.
func TestOutage_ShadowsDoNotAddUp(t *testing.T) {
	server := redistest.Start(t)
	w := start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 3s}\n", server.Addr)+`upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: a, key: "header:X-Phone", rate: 5/1h}
      - {name: b, key: "header:X-Phone", rate: 5/2h, mode: shadow}
      - {name: c, key: "header:X-Phone", rate: 5/3h, mode: shadow}
      - {name: d, key: "header:X-Phone", rate: 5/4h, mode: shadow}
`)
	w.statuses("p", 1)
	server.Signal(syscall.SIGSTOP)
	began := time.Now()
	w.statuses("p", 1)
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("a request over one limit and three in shadow took %v, want what one call may take: 3s", took)
	}
}

// A limit that is raised or lowered holds at once in an outage, also for a key that was refused before or not.
func TestOutage_LearnsAChangedLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := func(rate string) string {
		return redisDefaultYAML(server.Addr) + smsYAML(rate, ", on_store_failure: local")
	}
	change := func(w *weir, rate string) {
		t.Helper()
		w.edit(config(rate))
		if status, body := w.reload(); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	w := start(t, config("5/1h"))
	waitForMembership(t, server.Addr, 1)
	await.Until(t, "Redis decides", func() bool { return w.statuses("first", 1)[0] == 200 })
	if got := w.statuses("p", 6); !slices.Equal(got, []int{200, 200, 200, 200, 200, 429}) {
		t.Fatalf("six requests get %v", got)
	}
	change(w, "7/1h")
	server.Signal(syscall.SIGSTOP)
	if got := w.statuses("p", 3); !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("after the limit was raised to 7, three more requests in an outage get %v", got)
	}
	change(w, "1000/1h")
	if got := w.statuses("p", 3); !slices.Equal(got, []int{200, 200, 200}) {
		t.Errorf("after it was raised in the outage, three more requests get %v", got)
	}
	change(w, "3/1h")
	if got := append(w.statuses("p", 1), w.statuses("first", 3)...); !slices.Equal(got, []int{429, 200, 200, 429}) {
		t.Errorf("after it was lowered in the outage, one of 10 requests and three of 1 get %v", got)
	}
	server.Signal(syscall.SIGCONT)
}
