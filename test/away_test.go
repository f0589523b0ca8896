package test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

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
	if err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
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
			longest := map[string]time.Duration{}
			for began := time.Now(); time.Since(began) < outage; { // longer than a breaker rests, several times
				for _, operation := range operations() {
					status, body, took := w.operate(operation)
					longest[operation] = max(longest[operation], took)
					if status >= 400 && status < 409 && // 409, 422 and 503 say what cannot be done now
						!strings.Contains(body, "no plan is assigned") {
						t.Fatalf("%s: %d %s", operation, status, body)
					}
				}
			}
			for operation, took := range longest {
				if took > most {
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
	if !strings.Contains(stdout, "on all nodes but ") || !strings.Contains(stdout, "not heard from: they follow within seconds") {
		t.Errorf("with a node that hangs, the ban says %s", stdout)
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
