package test

import (
	"net/http"
	"slices"
	"strings"
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
