package test

import (
	"fmt"
	"io"
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
	outage = 4 * time.Second
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
				loads = append(loads, startLoad(t, 2, w.URL+"/"+policy, newPhones("load")))
			}
			for _, l := range loads {
				l.waitForMore(t, 20)
			}

			free := startLoad(t, 2, w.URL+"/free", newPhones("free"))
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
	t.Parallel()
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
				wantStatuses(t, policy+": 3 requests, of which 2 were left", w.ask(policy, "p", 3), 200, 200, 429)
				for _, l := range w.log.Lines()[before:] {
					if l.Text("fallback") != "" {
						t.Errorf("%s: decided without Redis, which is back: %v", policy, l.Text("error"))
					}
				}
			}
		})
	}
}

// operations are all that an operator can ask of a node, as METHOD PATH BODY.
func operations() []string {
	const key = `{"pairs": [{"key": "header:X-Phone", "value": "p"}]`
	const network = `{"pairs": [{"key": "client_ip", "value": "203.0.113.0/24"}]`
	return []string{
		"POST /api/v1/keys/inspect " + key + "}", "POST /api/v1/keys/ban " + key + `, "for": "1h"}`,
		"POST /api/v1/keys/unban " + key + "}", "POST /api/v1/keys/reset " + key + "}",
		"POST /api/v1/keys/grant " + key + `, "permits": 1}`, "POST /api/v1/keys/plan " + key + `, "plan": "pro", "for": "1h"}`,
		"POST /api/v1/keys/unplan " + key + "}", "POST /api/v1/keys/ban " + network + `, "for": "1h"}`,
		"POST /api/v1/keys/unban " + network + "}", "GET /api/v1/keys/plans", "GET /api/v1/bans",
		`POST /api/v1/maintenance {"on": true, "route": "other"}`, `POST /api/v1/maintenance {"on": false, "route": "other"}`,
		"GET /api/v1/maintenance", `POST /api/v1/outcomes {"key": "header:X-Phone", "value": "p", "outcome": "verified"}`,
		"GET /api/v1/nodes", "GET /api/v1/leader", "GET /api/v1/statistics", "GET /api/v1/upstreams", "GET /api/v1/top",
		"GET /api/v1/conversion", "GET /api/v1/decisions", "GET /api/v1/audit", "GET /api/v1/config", "GET /api/v1/limits",
		"GET /api/v1/history", `POST /api/v1/rollback {}`, `POST /api/v1/push {"bundle": {"main": "a", "files": {"a": "routes: []"}}}`, // not valid
		`POST /api/v1/explain {"method": "POST", "url": "/v1/sms/send", "header": {"X-Phone": ["p"]}}`,
		"POST /reload", "GET /metrics", "GET /readyz", "GET /healthz", "GET /", "GET /dashboard/series", "GET /dashboard/routes", "GET /dashboard/keys",
		"GET /dashboard/top", "GET /dashboard/conversion", "GET /dashboard/decisions", "GET /dashboard/upstreams",
		"GET /dashboard/nodes", "GET /dashboard/config", "GET /dashboard/audit",
	}
}

// operate sends one of operations, and returns how long it took.
func (w *weir) operate(operation string) (status int, body string, took time.Duration) {
	w.t.Helper()
	method, rest, _ := strings.Cut(operation, " ")
	path, sent, _ := strings.Cut(rest, " ")
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.Admin+path, strings.NewReader(sent))
	check(w.t, err)
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	check(w.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(w.t, err)
	return answer.StatusCode, string(text), time.Since(began)
}

// Nothing that an operator asks waits for a Redis that is known to be away, be it gone or silent, whatever the
// circuit breakers try meanwhile. A call that waited would take a second.
func TestOperators_DoNotWaitForARedisThatIsAway(t *testing.T) {
	t.Parallel()
	const most = 900 * time.Millisecond // 300 ms, on a busy machine
	for name, take := range map[string]func(s *redistest.Server){
		"gone":   func(s *redistest.Server) { s.Kill() },
		"silent": func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			w := start(t, redisDefaultYAML(server.Addr)+"reload: {source: redis}\n"+smsYAML("1/1h", ", plans: {pro: 3/1h}")+`
      - {name: codes, key: "header:X-Phone", rate: 9/1h, return_on: {route: other, key: "header:X-Phone", status: [2xx]}}
      - {name: ip, key: client_ip, rate: 9/1h, on_store_failure: deny}
  - {name: other, match: {methods: [POST], path: /other}, upstream: demo, limits: [{name: guesses, key: "header:X-Phone", rate: 9/1h}]}
`)
			w.send("p")
			take(server)
			if name == "silent" {
				t.Cleanup(func() { server.Signal(syscall.SIGCONT) })
			}
			await.Until(t, "the node knows", func() bool {
				status, text, took := w.operate("GET /readyz")
				return status == 200 && strings.Contains(text, "redis is unreachable") && took < most/2
			})
			late := map[string][]time.Duration{}
			for began := time.Now(); time.Since(began) < outage; { // longer than a breaker rests, several times
				for _, operation := range operations() {
					status, body, took := w.operate(operation)
					if took > most {
						late[operation] = append(late[operation], took)
					}
					if status >= 400 && status < 409 && // 409, 422 and 503 say what cannot be done now
						!strings.Contains(body, "no assignment of a plan") {
						t.Fatalf("%s: %d %s", operation, status, body)
					}
				}
			}
			for operation, took := range late {
				if len(took) > 1 || took[0] > 2*most { // once a little may be the machine's fault
					t.Errorf("%s took %v; want at most %v", operation, took, most)
				}
			}
		})
	}
}

// When an answer says that a change holds on all nodes, it does; a node that does not follow is named.
func TestDirectives_HoldWhereTheAnswerSaysSo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("9/1h", ", plans: {none: none, less: 1/1h}")
	one, other := start(t, config), start(t, config)
	waitForNodes(t, server.Addr, 2)
	for range 3 { // a node reads them every second, whenever it was told
		for _, c := range []struct {
			want int
			args []string
		}{
			{403, []string{"keys", "ban", "client_ip=127.0.0.0/8", "--for", "1h"}}, {200, []string{"keys", "unban", "client_ip=127.0.0.0/8"}},
			{503, []string{"maintenance", "on"}}, {200, []string{"maintenance", "off"}},
			{429, []string{"keys", "plan", "header:X-Phone=p", "less", "--for", "1h"}}, {200, []string{"keys", "plan", "header:X-Phone=p", "--clear"}},
		} {
			code, stdout, stderr := one.admin(t.TempDir(), c.args...)
			if got := other.statuses("p", 2)[1]; code != 0 || got != c.want || strings.Contains(stdout, "not heard from") {
				t.Fatalf("weir %v exits %d: %s%s; then the other node answers %d, want %d", c.args, code, stdout, stderr, got, c.want)
			}
			if c.args[0] == "keys" && !strings.Contains(stdout, ", on all nodes\n") {
				t.Errorf("weir %v: %s", c.args, stdout)
			}
			one.keys("reset", "header:X-Phone=p")
		}
	}
	other.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { other.Signal(syscall.SIGCONT) })
	stdout := one.keys("ban", "client_ip=203.0.113.0/24", "--for", "1h")
	if !strings.Contains(stdout, "on all nodes but ") || !strings.Contains(stdout, "not heard from: they follow once they are back") {
		t.Errorf("with a node that hangs, the ban says %s", stdout)
	}
	if stdout := one.keys("ban", "header:X-Phone=p", "--for", "1h"); !strings.Contains(stdout, "on all nodes but ") {
		t.Errorf("with a node that hangs, the ban of a key says %s", stdout)
	}
	if _, stdout, _ := one.admin(t.TempDir(), "audit"); strings.Count(stdout, "all but ") != 2 {
		t.Errorf("weir audit says\n%s; want that both bans are of all but one", stdout)
	}
	if _, stdout, _ := one.admin(t.TempDir(), "maintenance", "on", "sms-send"); !strings.Contains(stdout, "this holds on all nodes but ") {
		t.Errorf("with a node that hangs, maintenance says %s", stdout)
	}
	if _, trail := one.get(one.Admin + "/api/v1/audit"); strings.Contains(trail, "one_node") {
		t.Errorf("the audit trail says that a change holds on one node: %s", trail)
	}
}

// What was changed in an outage is in the audit trail as a change on all nodes, once it is that.
func TestAudit_OfAChangeInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+smsYAML("1/1h", ", plans: {pro: 3/1h}"))
	w.send("p")
	server.Kill()
	await.Until(t, "the node knows", func() bool {
		status, _, _ := w.operate("GET /api/v1/audit")
		return status == http.StatusServiceUnavailable
	})
	for _, args := range [][]string{
		{"ban", "header:X-Phone=p", "--for", "1h"}, {"plan", "header:X-Phone=p", "pro", "--for", "1h"}, {"ban", "client_ip=203.0.113.0/24", "--for", "1h"},
	} {
		await.Until(t, "it waits for redis", func() bool {
			return strings.Contains(w.keys(args...), "on this node now, on all nodes when redis is back")
		})
	}
	if code, stdout, _ := w.admin(t.TempDir(), "maintenance", "on", "sms-send"); code != 0 || !strings.Contains(stdout, "when redis is back") {
		t.Errorf("maintenance says %s", stdout)
	}
	server.Restart()
	var trail string
	await.Until(t, "all changes are in the trail", func() bool {
		_, trail = w.get(w.Admin + "/api/v1/audit")
		return strings.Count(trail, "on all nodes since ") == 4
	})
	if strings.Contains(trail, "one_node") || strings.Contains(trail, "when redis is back") {
		t.Errorf("the audit trail is %s; want that each holds on all nodes", trail)
	}
	if _, stdout, _ := w.admin(t.TempDir(), "audit"); strings.Contains(stdout, " only") || strings.Count(stdout, "all nodes  ") != 4 {
		t.Errorf("weir audit says\n%s", stdout)
	}
}
