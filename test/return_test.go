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
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// sendTo sends a code to a phone from a client and returns the status.
func (w *weir) sendTo(phone, client string) int {
	w.t.Helper()
	status, _ := do(w.t, http.MethodPost, w.URL+"/send", http.Header{"X-Phone": {phone}, "X-Client": {client}})
	return status
}

// What was sent is counted until its code is used, on any node, or until an application says that it was.
func TestReturn_OnTwoNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + `upstreams: {demo: echo}
keys: {phone: "header:X-Phone", client: "header:X-Client"}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: unused, key: client, rates: [2/1h, 5/1d], return_on: {route: verify, status: [2xx], key: phone}}]
  - {name: verify, match: {methods: [POST], path: /verify}, upstream: demo, limits: [{key: phone, rate: 100/1h}]}
`
	one, other := start(t, config), start(t, config)
	waitForNodes(t, server.Addr, 2)
	for _, w := range []*weir{one, one, one, other} {
		w.sendTo("a", "c")
	}
	if got := []int{one.sendTo("b", "c"), other.sendTo("b", "c")}; !slices.Equal(got, []int{429, 429}) {
		t.Fatalf("with two codes unused the answers are %v", got)
	}
	if status, _ := do(t, http.MethodPost, other.URL+"/verify", http.Header{"X-Phone": {"a"}}); status != 200 {
		t.Fatal(status)
	}
	if got := other.sendTo("b", "c"); got != 200 { // at once on this node
		t.Errorf("after the code was used the answer is %d", got)
	}
	await.Within(t, 5*time.Second, "the client passes on the other node", func() bool { return one.sendTo("b", "c") == 200 })
	if got := one.sendTo("b", "c"); got != 429 {
		t.Fatalf("with two codes unused again the answer is %d", got)
	}
	outcome := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := one.admin(t.TempDir(), append([]string{"outcome"}, args...)...)
		if code != want {
			t.Errorf("weir outcome %v exits %d: %s%s", args, code, stdout, stderr)
		}
		return stdout + stderr
	}
	if said := outcome(0, "phone=b", "verified"); said != "send.unused: returned the permits of 2 requests\n" {
		t.Errorf("outcome says %q", said)
	}
	if said := outcome(0, "phone=b", "verified", "--json"); !strings.Contains(said, `"requests": 0`) {
		t.Errorf("outcome says %q", said)
	}
	if said := outcome(1, "client=c", "verified"); !strings.Contains(said, `no return_on has the key "client"; write one of phone`) {
		t.Errorf("outcome says %q", said)
	}
	if said := outcome(1, "phone=b", "used"); !strings.Contains(said, "write verified") {
		t.Errorf("outcome says %q", said)
	}
	if got := []int{one.sendTo("d", "c"), one.sendTo("d", "c"), one.sendTo("d", "c")}; !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("after the outcome the answers are %v", got)
	}
	entry := one.WaitForLog("operator action", func(l logtest.Line) bool { return l.Text("action") == "verified" })
	if entry.Text("who") != "local" || entry.Text("key_hash") == "" {
		t.Errorf("the log says %v", entry)
	}
	for target, want := range map[string]string{
		"/send":   "returned by verify for the same phone",
		"/verify": "send.unused  with a status of 2xx  the permits of the same phone",
	} {
		code, stdout, stderr := one.admin(t.TempDir(), "explain", "POST", target, "-H", "X-Phone: d", "-H", "X-Client: c")
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("explain exits %d: %s%s; want %q", code, stdout, stderr, want)
		}
	}
}

// A code that was sent in an outage of Redis is returned when it is used: in the outage, once Redis has heard of it, and
// on another node.
func TestReturn_OfWhatWasSentInAnOutage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"sliding_log", "gcra"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			config := redisDefaultYAML(server.Addr) + `upstreams: {demo: echo}
keys: {phone: "header:X-Phone", client: "header:X-Client"}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: unused, key: client, rates: [20/1h, 50/1d], algorithm: ` + algorithm + `, return_on: {route: verify, status: [2xx], key: phone}}]
  - {name: verify, match: {methods: [POST], path: /verify}, upstream: demo, limits: [{key: phone, rate: 100/1h}]}
`
			one, other := start(t, config), start(t, config)
			waitForMembership(t, server.Addr, 2)
			used := func(w *weir, phone string) {
				t.Helper()
				if status, _ := do(t, http.MethodPost, w.URL+"/verify", http.Header{"X-Phone": {phone}}); status != 200 {
					t.Fatal(status)
				}
			}
			server.Signal(syscall.SIGSTOP)
			for i := range 9 {
				if status := one.sendTo(fmt.Sprint(i), "c"); status != 200 {
					t.Fatalf("code %d in the outage: %d", i, status)
				}
			}
			used(one, "0")
			used(one, "1")
			server.Signal(syscall.SIGCONT)
			await.Until(t, "Redis has heard of seven in both windows, and of two that were used", func() bool {
				return one.metric(`weir_store_reported_permits_total{result="counted"}`) >= 2*7+2
			})
			for i := 2; i < 5; i++ {
				used(one, fmt.Sprint(i))
			}
			for i := 5; i < 9; i++ {
				used(other, fmt.Sprint(i))
			}
			passed := 0
			await.Until(t, "Redis decides alone", func() bool { return one.checks()["store"] == "ok" && other.checks()["store"] == "ok" })
			for i := range 21 {
				if other.sendTo(fmt.Sprint("later", i), "c") == 200 {
					passed++
				}
			}
			if passed != 20 {
				t.Errorf("%d of 20 codes can be sent after all that were sent in the outage were used", passed)
			}
		})
	}
}
