package test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// twoNodes starts two that share a Redis and refuse phone p after one request.
func twoNodes(t *testing.T, more string) (one, other *weir) {
	t.Helper()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", more)
	one, other = start(t, config), start(t, config)
	waitForNodes(t, server.Addr, 2)
	one.send("p")
	for _, w := range []*weir{one, other} { // each remembers the refusal
		if got := w.statuses("p", 2); !slices.Equal(got, []int{429, 429}) {
			t.Fatalf("after the only permit a node answers %v", got)
		}
	}
	return one, other
}

// keys runs weir keys against w, which must do what it is told.
func (w *weir) keys(args ...string) string {
	w.t.Helper()
	code, stdout, stderr := w.admin(w.t.TempDir(), append([]string{"keys"}, args...)...)
	if code != 0 {
		w.t.Fatalf("weir keys %v exits %d: %s%s", args, code, stdout, stderr)
	}
	return stdout
}

// What is reset through one node passes on both at once, although both remember that it
// was refused.
func TestKeys_ResetOnOneNodePassesOnAll(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	said := one.keys("reset", "header:X-Phone=p", "--reason", "the phone was lent")
	if !strings.Contains(said, ", on all nodes") {
		t.Errorf("reset says %q", said)
	}
	await.Within(t, 5*time.Second, "the key passes on the other node", func() bool { return other.send("p") == 200 })
	if got := one.send("p"); got != 429 {
		t.Errorf("after the permit that came back was used, the first node answers %d, want 429", got)
	}
	one.keys("reset", "header:X-Phone=p")
	if got := one.send("p"); got != 200 {
		t.Errorf("reset key is answered %d on the node that was told, want 200", got)
	}
	line := one.WaitForLog("operator action", func(l logtest.Line) bool { return l.Text("reason") == "the phone was lent" })
	if line.Text("who") != "local" || line.Text("action") != "reset" || line.Text("key_hash") == "" || line.Text("operator_address") == "" {
		t.Errorf("the log says %v", line)
	}
	status, trail := other.get(other.Admin + "/api/v1/audit")
	if status != http.StatusOK || strings.Count(trail, `"action":"reset"`) != 2 || !strings.Contains(trail, "the phone was lent") {
		t.Errorf("the audit trail on the other node is %d %s", status, trail)
	}
}

// What is wrong is said in the words that a request would be told.
func TestKeys_WrongValues(t *testing.T) {
	t.Parallel()
	w := start(t, `keys: {phone: {from: "header:X-Phone", normalize: e164}}
routes: [{name: sms, match: {path: /sms}, respond: {body: ok}, limits: [{name: phone, key: phone, rate: 1/1h}]}]
`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "phone=12"}, "phone: key not valid"},
		{[]string{"get", "fone=+8613800138000"}, "write one of phone"},
		{[]string{"get", "phone"}, "write KEY=VALUE"},
		{[]string{"get", "phone=+8613800138000", "--route", "none"}, "write one of sms"},
		{[]string{"ban", "phone=+8613800138000", "--for", "1"}, "write for example 1h"},
		{[]string{"ban", "phone=+8613800138000", "--for", "400d"}, "from 1ms to 366d"},
		{[]string{"grant", "phone=+8613800138000", "--permits", "0"}, "write a whole number from 1"},
		{[]string{"ban", "phone=+8613800138000"}, "--for"},
	} {
		code, stdout, stderr := w.admin(t.TempDir(), append([]string{"keys"}, c.args...)...)
		if code == 0 || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("weir keys %v exits %d: %s%s; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// What operators do to the configuration is in the audit trail, also what was in vain.
func TestAudit_TellsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startFollowers(t, server.Addr, 1)[0]
	for n := 1; n <= 2; n++ {
		if code, stdout, stderr := w.push(revisionYAML(n), "ann"); code != 0 {
			t.Fatalf("push exits %d: %s%s", code, stdout, stderr)
		}
	}
	w.push("routes: []\n", "bob")
	w.push(revisionYAML(3), "ann", "--dry-run")
	if code, stdout, stderr := w.admin(w.Dir, "rollback", "--author", "cy"); code != 0 {
		t.Fatalf("rollback exits %d: %s%s", code, stdout, stderr)
	}
	w.reload()
	_, text := w.get(w.Admin + "/api/v1/audit")
	var trail struct {
		Entries []struct{ Who, Action, Detail, Error string }
	}
	if err := json.Unmarshal([]byte(text), &trail); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range trail.Entries {
		did := e.Action
		if e.Error != "" {
			did += " in vain"
		} else if _, by, found := strings.Cut(e.Detail, " by "); found {
			did += " by " + by
		}
		got = append(got, e.Who+": "+did)
	}
	want := []string{"local: reload", "local: rollback by cy", "local: push in vain", "local: push by ann", "local: push by ann"}
	if !slices.Equal(got, want) {
		t.Errorf("the audit trail is %q, want %q: %s", got, want, text)
	}
}

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
	runs(other, 0, "pro   all    30d", "keys", "plans")
	runs(other, 0, "plan pro (assigned by an operator until ", "explain", "POST", "/v1/sms/send", "-H", "X-Phone: p")
	runs(other, 0, "plan for 30d", "audit")
	runs(other, 0, "ended the assignment of a plan under sms-send.phone, on all nodes\n", "keys", "plan", "header:X-Phone=p", "--clear")
	runs(other, 1, "no assignment of a plan to this key to end", "keys", "plan", "header:X-Phone=p", "--clear")
	runs(one, 0, "none for 1s under", "keys", "plan", "header:X-Phone=p", "none", "--for", "1s")
	await.Until(t, "the plan of a second holds", func() bool { return late.send("p") == 200 })
	await.Until(t, "it is over", func() bool { return late.send("p") == 429 && one.send("p") == 429 })
}

// What is changed while Redis hangs holds on all nodes when it is back, unless its time is
// over; a node that ends before says what is lost.
func TestKeys_ChangedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisDefaultYAML(server.Addr) + smsYAML("9/1h", "")
	one, other := start(t, config), start(t, config)
	waitForMembership(t, server.Addr, 2)
	server.Signal(syscall.SIGSTOP)
	if said := one.keys("ban", "header:X-Phone=p", "--for", "1h"); !strings.Contains(said, "banned for 1h by sms-send.phone, on this node now, on all nodes when redis is back\n") {
		t.Errorf("ban says %q", said)
	}
	one.keys("ban", "header:X-Phone=short", "--for", "1s")
	one.keys("reset", "header:X-Phone=r", "--reason", "while it is away")
	await.Until(t, "a short ban is over", func() bool { return one.send("short") == 200 })
	if got := []int{one.send("p"), other.send("p")}; !slices.Equal(got, []int{429, 200}) {
		t.Errorf("while Redis hangs the nodes answer %v, want the ban on the one that was told", got)
	}
	server.Signal(syscall.SIGCONT)
	await.Until(t, "the ban holds on the other node", func() bool { return other.send("p") == 429 })
	one.WaitForLog("deferred key change", func(l logtest.Line) bool { return l.Text("action") == "reset" })
	for _, w := range []*weir{one, other} {
		if got := w.send("short"); got != 200 {
			t.Errorf("a key whose ban has ended is answered %d, want 200", got)
		}
		if said := w.keys("get", "header:X-Phone=p"); !strings.Contains(said, "59m") {
			t.Errorf("get says %q; want what is left of the hour", said)
		}
	}
	await.Until(t, "the audit trail tells of it", func() bool {
		_, trail := other.get(other.Admin + "/api/v1/audit")
		return strings.Contains(trail, "while it is away") && strings.Contains(trail, "on all nodes since ")
	})

	server.Kill()
	other.keys("ban", "header:X-Phone=q", "--for", "1h")
	other.Signal(syscall.SIGTERM)
	other.WaitForLog("key change lost; redis was not reachable again before this node ended", func(l logtest.Line) bool {
		return l.Text("action") == "ban" && l.Text("limit") == "sms-send.phone"
	})
}

// A network is banned on all nodes, for a time; addresses inside say so. Maintenance holds on all nodes as well.
func TestKeys_BanOfANetworkAndMaintenance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("99999/1h", "") // waiting takes permits
	one, other := start(t, config), start(t, config)
	both := func(what string, want int) {
		t.Helper()
		await.Until(t, what, func() bool { return one.send("p") == want && other.send("p") == want })
	}
	for _, step := range []struct {
		args []string
		want string // printed
	}{
		{[]string{"keys", "ban", "client_ip=127.0.0.9/26", "--for", "1h", "--reason", "scan"}, "network 127.0.0.0/26 banned for 1h on all routes, on all nodes\n"},
		{[]string{"keys", "get", "client_ip=127.0.0.1"}, "refused now by the ban of 127.0.0.0/26 until "},
		{[]string{"keys", "get", "client_ip=127.0.0.64/26"}, "no network is banned there\n"},
		{[]string{"keys", "bans"}, "127.0.0.0/26  all"},
		{[]string{"audit"}, "ban for 1h"},
	} {
		if code, stdout, stderr := one.admin(t.TempDir(), step.args...); code != 0 || !strings.Contains(stdout, step.want) {
			t.Errorf("weir %v exits %d: %s%s; want %q", step.args, code, stdout, stderr, step.want)
		}
	}
	both("the network is banned on both nodes", 403)
	late := start(t, config)
	if got := late.send("p"); got != 403 {
		t.Errorf("a node that starts later answers %d, want 403", got)
	}
	other.keys("unban", "client_ip=127.0.0.0/26")
	both("the ban is over on both nodes", 200)
	if code, _, stderr := one.admin(t.TempDir(), "keys", "unban", "client_ip=127.0.0.0/26"); code != 1 || !strings.Contains(stderr, "weir keys bans") {
		t.Errorf("unban of what is not banned exits %d: %s", code, stderr)
	}
	if code, stdout, stderr := one.admin(t.TempDir(), "maintenance", "on", "sms-send", "--for", "1h"); code != 0 || !regexp.MustCompile(`maintenance  sms-send  (1h|59m\d\ds)`).MatchString(stdout) {
		t.Errorf("maintenance on exits %d: %s%s", code, stdout, stderr)
	}
	both("both nodes are under maintenance", 503)
	if code, _, stderr := one.admin(t.TempDir(), "maintenance", "off"); code != 1 || !strings.Contains(stderr, "there is no maintenance of all routes to end; under maintenance: sms-send\n") {
		t.Errorf("maintenance off of another route exits %d: %s", code, stderr)
	}
	if code, stdout, stderr := other.admin(t.TempDir(), "maintenance", "off", "sms-send"); code != 0 || stdout != "maintenance of sms-send has ended\nno route is under maintenance\n" {
		t.Errorf("maintenance off exits %d: %s%s", code, stdout, stderr)
	}
	both("maintenance is over on both nodes", 200)
	if code, _, stderr := one.admin(t.TempDir(), "maintenance", "off", "sms-send"); code != 1 || !strings.Contains(stderr, "there is no maintenance of route sms-send to end; under maintenance: no route\n") {
		t.Errorf("maintenance off once more exits %d: %s", code, stderr)
	}
	if code, _, stderr := one.admin(t.TempDir(), "maintenance", "on", "none"); code != 1 || !strings.Contains(stderr, `no route "none"`) {
		t.Errorf("maintenance of no route exits %d: %s", code, stderr)
	}
}

// explains waits until w tells of a request, and wants these words of it. A node that is
// busy may be late with what it knows.
func (w *weir) explains(id string, want ...string) {
	w.t.Helper()
	var stdout, stderr string
	await.Until(w.t, "a node knows request "+id, func() bool {
		var code int
		code, stdout, stderr = w.admin(w.t.TempDir(), "explain", id)
		return code == 0
	})
	for _, words := range want {
		if !strings.Contains(stdout, words) {
			w.t.Errorf("explain %s says %s%s; want %q", id, stdout, stderr, words)
		}
	}
}
