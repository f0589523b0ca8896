package test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// What an operator assigns at one node is the plan of the key on all, also on one that starts later, until
// its time is over or an operator ends it; both are in the audit trail.
func TestKeys_PlanOnAllNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", ", plans: {pro: 3/1h, none: none}")
	one, other := start(t, config), start(t, config)
	if got := []int{one.send("p"), other.send("p")}; !slices.Equal(got, []int{200, 429}) {
		t.Fatalf("without a plan: %v", got)
	}
	runs := func(w *weir, code int, want string, args ...string) {
		t.Helper()
		if got, stdout, stderr := w.admin(t.TempDir(), args...); got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("weir %v exits %d: %s%s; want %d and %q", args, got, stdout, stderr, code, want)
		}
	}
	runs(one, 1, `has the plan "gold"; write one of none, pro`, "keys", "plan", "header:X-Phone=p", "gold", "--for", "30d")
	runs(one, 0, "no plan is assigned", "keys", "plans")
	runs(one, 0, "assigned the plan pro for 30d under sms-send.phone, on all nodes\n", "keys", "plan", "header:X-Phone=p", "pro", "--for", "30d", "--reason", "paid")
	await.Until(t, "the other node has the plan", func() bool { return other.send("p") == 200 })
	late := start(t, config)
	if got := []int{late.send("p"), late.send("p"), late.send("q"), late.send("q")}; !slices.Equal(got, []int{200, 429, 200, 429}) {
		t.Errorf("a node that starts later answers %v; want what is left of the plan, and the other key without it", got)
	}
	runs(other, 0, "plan pro, assigned until ", "keys", "get", "header:X-Phone=p")
	runs(other, 0, "pro   all    7", "keys", "plans")
	runs(other, 0, "plan pro (assigned by an operator until ", "explain", "POST", "/v1/sms/send", "-H", "X-Phone: p")
	runs(other, 0, "plan for 30d", "audit")
	runs(other, 0, "ended the assignment of a plan under sms-send.phone, on all nodes\n", "keys", "plan", "header:X-Phone=p", "--clear")
	runs(other, 1, "no plan is assigned to this key so", "keys", "plan", "header:X-Phone=p", "--clear")
	runs(one, 0, "none for 1s under", "keys", "plan", "header:X-Phone=p", "none", "--for", "1s")
	await.Until(t, "the plan of a second holds", func() bool { return late.send("p") == 200 })
	await.Until(t, "it is over", func() bool { return late.send("p") == 429 && one.send("p") == 429 })
}

// Without Redis it holds on the node.
func TestKeys_PlanInMemory(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ", plans: {pro: 2/1h}"))
	w.keys("plan", "header:X-Phone=p", "pro", "--for", "1h")
	if got := w.statuses("p", 3); !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("%v; want two of the plan", got)
	}
	if code, _, stderr := w.admin(t.TempDir(), "keys", "plan", "header:X-Phone=p", "--for", "1h"); code == 0 || !strings.Contains(stderr, "no plan is named") {
		t.Errorf("no plan: exits %d: %s", code, stderr)
	}
	if code, _, stderr := w.admin(t.TempDir(), "keys", "plan", "header:X-Phone=p", "pro"); code == 0 || !strings.Contains(stderr, "--for") {
		t.Errorf("no time: exits %d: %s", code, stderr)
	}
}
