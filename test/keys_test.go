package test

import (
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
		wantStatuses(t, "after the only permit", w.statuses("p", 2), 429, 429)
	}
	return one, other
}

// keys runs weir keys against w, which must do what it is told.
func (w *weir) keys(args ...string) string {
	w.t.Helper()
	return w.runs(0, "", append([]string{"keys"}, args...)...)
}

// What is reset through one node passes on both at once, although both remember that it
// was refused.
func TestKeys_ResetOnOneNodePassesOnAll(t *testing.T) {
	t.Parallel()
	one, other := twoNodes(t, "")
	one.runs(0, ", on all nodes", "keys", "reset", "header:X-Phone=p", "--reason", "the phone was lent")
	await.Within(t, 5*time.Second, "the key passes on the other node", func() bool { return other.send("p") == 200 })
	wantStatuses(t, "after the permit that came back was used, the first node", one.statuses("p", 1), 429)
	one.keys("reset", "header:X-Phone=p")
	wantStatuses(t, "reset key on the node that was told", one.statuses("p", 1), 200)
	line := one.WaitForLog("operator action", func(l logtest.Line) bool { return l.Text("reason") == "the phone was lent" })
	if line.Text("who") != "local" || line.Text("action") != "reset" || line.Text("key_hash") == "" || line.Text("operator_address") == "" {
		t.Errorf("the log says %v", line)
	}
	status, trail := other.get(other.Admin + "/api/v1/audit")
	if status != http.StatusOK || strings.Count(trail, `"action":"reset"`) != 2 || !strings.Contains(trail, "the phone was lent") {
		t.Errorf("the audit trail on the other node is %d %s", status, trail)
	}
}

// What operators do to the configuration is in the audit trail, also what was in vain.
func TestAudit_TellsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	w := startFollowers(t, redistest.Start(t).Addr, 1)[0]
	for n := 1; n <= 2; n++ {
		w.pushes(0, "", revisionYAML(n), "ann")
	}
	w.push("routes: []\n", "bob")
	w.push(revisionYAML(3), "ann", "--dry-run")
	w.runs(0, "", "rollback", "--author", "cy")
	w.reload()
	var trail struct {
		Entries []struct{ Who, Action, Detail, Error string }
	}
	w.getAdmin("/api/v1/audit", &trail)
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
		t.Errorf("the audit trail is %q, want %q: %v", got, want, trail)
	}
}

// What an operator assigns at one node is the plan of the key on all, also on one that starts later, until
// its time is over or an operator ends it; both are in the audit trail.
func TestKeys_PlanOnAllNodes(t *testing.T) {
	t.Parallel()
	config := redisYAML(redistest.Start(t).Addr) + smsYAML("1/1h", ", plans: {pro: 3/1h, none: none}")
	one, other := start(t, config), start(t, config)
	wantStatuses(t, "without a plan", []int{one.send("p"), other.send("p")}, 200, 429)
	one.runs(1, `has the plan "gold"; write one of none, pro`, "keys", "plan", "header:X-Phone=p", "gold", "--for", "30d")
	one.runs(0, "no plan is assigned", "keys", "plans")
	one.runs(0, "assigned the plan pro for 30d under sms-send.phone, on all nodes\n", "keys", "plan", "header:X-Phone=p", "pro", "--for", "30d", "--reason", "paid")
	await.Until(t, "the other node has the plan", func() bool { return other.send("p") == 200 })
	late := start(t, config)
	wantStatuses(t, "a node that starts later, for what is left of the plan and for another key", []int{late.send("p"), late.send("p"), late.send("q"), late.send("q")}, 200, 429, 200, 429)
	other.runs(0, "plan pro, assigned until ", "keys", "get", "header:X-Phone=p")
	other.runs(0, "pro   all    30d", "keys", "plans")
	other.runs(0, "plan pro (assigned by an operator until ", "explain", "POST", "/v1/sms/send", "-H", "X-Phone: p")
	other.runs(0, "plan for 30d", "audit")
	other.runs(0, "ended the assignment of a plan under sms-send.phone, on all nodes\n", "keys", "plan", "header:X-Phone=p", "--clear")
	other.runs(1, "no assignment of a plan to this key to end", "keys", "plan", "header:X-Phone=p", "--clear")
	one.runs(0, "none for 1s under", "keys", "plan", "header:X-Phone=p", "none", "--for", "1s")
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
	one.runs(0, "banned for 1h by sms-send.phone, on this node now, on all nodes when redis is back\n", "keys", "ban", "header:X-Phone=p", "--for", "1h")
	one.keys("ban", "header:X-Phone=short", "--for", "1s")
	one.keys("reset", "header:X-Phone=r", "--reason", "while it is away")
	await.Until(t, "a short ban is over", func() bool { return one.send("short") == 200 })
	wantStatuses(t, "while Redis hangs, with the ban on the one that was told", []int{one.send("p"), other.send("p")}, 429, 200)
	server.Signal(syscall.SIGCONT)
	await.Until(t, "the ban holds on the other node", func() bool { return other.send("p") == 429 })
	one.WaitForLog("deferred key change", func(l logtest.Line) bool { return l.Text("action") == "reset" })
	for _, w := range []*weir{one, other} {
		wantStatuses(t, "a key whose ban has ended", w.statuses("short", 1), 200)
		w.runs(0, "59m", "keys", "get", "header:X-Phone=p") // what is left of the hour
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
	config := redisYAML(redistest.Start(t).Addr) + smsYAML("99999/1h", "") // waiting takes permits
	one, other := start(t, config), start(t, config)
	both := func(what string, want int) {
		t.Helper()
		await.Until(t, what, func() bool { return one.send("p") == want && other.send("p") == want })
	}
	one.runs(0, "network 127.0.0.0/26 banned for 1h on all routes, on all nodes\n", "keys", "ban", "client_ip=127.0.0.9/26", "--for", "1h", "--reason", "scan")
	one.runs(0, "refused now by the ban of 127.0.0.0/26 until ", "keys", "get", "client_ip=127.0.0.1")
	one.runs(0, "no network is banned there\n", "keys", "get", "client_ip=127.0.0.64/26")
	one.runs(0, "127.0.0.0/26  all", "keys", "bans")
	one.runs(0, "ban for 1h", "audit")
	both("the network is banned on both nodes", 403)
	late := start(t, config)
	wantStatuses(t, "a node that starts later", late.statuses("p", 1), 403)
	other.keys("unban", "client_ip=127.0.0.0/26")
	both("the ban is over on both nodes", 200)
	one.runs(1, "weir keys bans", "keys", "unban", "client_ip=127.0.0.0/26")
	if code, stdout, stderr := one.admin(t.TempDir(), "maintenance", "on", "sms-send", "--for", "1h"); code != 0 || !regexp.MustCompile(`maintenance  sms-send  (1h|59m\d\ds)`).MatchString(stdout) {
		t.Errorf("maintenance on exits %d: %s%s", code, stdout, stderr)
	}
	both("both nodes are under maintenance", 503)
	one.runs(1, "there is no maintenance of all routes to end; under maintenance: sms-send\n", "maintenance", "off")
	if said := other.runs(0, "", "maintenance", "off", "sms-send"); said != "maintenance of sms-send has ended\nno route is under maintenance\n" {
		t.Errorf("maintenance off says %q", said)
	}
	both("maintenance is over on both nodes", 200)
	one.runs(1, "there is no maintenance of route sms-send to end; under maintenance: no route\n", "maintenance", "off", "sms-send")
	one.runs(1, `no route "none"`, "maintenance", "on", "none")
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
