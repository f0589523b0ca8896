package test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

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
		{[]string{"keys", "ban", "client_ip=127.0.0.9/26", "--for", "1h", "--reason", "scan"}, "banned for 1h network 127.0.0.0/26 on all routes, on all nodes\n"},
		{[]string{"keys", "get", "client_ip=127.0.0.1"}, "refused now by the ban of 127.0.0.0/26, passes "},
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
	if code, stdout, stderr := one.admin(t.TempDir(), "maintenance", "on", "sms-send", "--for", "1h"); code != 0 || !strings.Contains(stdout, "maintenance  sms-send  1h0m0s") {
		t.Errorf("maintenance on exits %d: %s%s", code, stdout, stderr)
	}
	both("both nodes are under maintenance", 503)
	if code, stdout, stderr := other.admin(t.TempDir(), "maintenance", "off", "sms-send"); code != 0 || stdout != "no route is under maintenance\n" {
		t.Errorf("maintenance off exits %d: %s%s", code, stdout, stderr)
	}
	both("maintenance is over on both nodes", 200)
	if code, _, stderr := one.admin(t.TempDir(), "maintenance", "on", "none"); code != 1 || !strings.Contains(stderr, `no route "none"`) {
		t.Errorf("maintenance of no route exits %d: %s", code, stderr)
	}
}
