package test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// On a terminal an operator sees whom two nodes refuse, and unblocks him on both.
func TestTop_UnblocksAKeyFromATerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", "")
	one, other := start(t, config), start(t, config)
	waitForMembership(t, server.Addr, 2)
	one.statuses("p", 3)
	other.statuses("p", 3)
	top := exec.Command("weir", "top", "--admin", one.Admin, "--every", "200ms")
	screen := onTerminal(t, top, 100, 30)
	screen.waitForText("[1 Keys]", "2 nodes", "all serve one config", "sms-send.phone", "5        6")
	screen.send("2")
	screen.waitForText("[2 Limits]", "sms-send.phone  5        6         83 %   1/1h")
	screen.send("4")
	screen.waitForText("[4 Nodes]", "leads")
	screen.send("5")
	screen.waitForText("[5 Upstreams]", "2 of 2")
	screen.resize(70, 12)
	screen.waitForText("[5 Upstreams]", "demo")
	screen.send("1r")
	screen.waitForText("why? _")
	screen.send("the phone was lent\ry")
	screen.waitForText("under 1 limit, on all nodes")
	await.Until(t, "the key passes on the other node", func() bool { return other.send("p") == 200 })
	status, trail := other.get(other.Admin + "/api/v1/audit")
	if status != 200 || !strings.Contains(trail, "the phone was lent") {
		t.Errorf("the audit trail on the other node is %d %s", status, trail)
	}
	screen.send("q")
	if err := top.Wait(); err != nil {
		t.Errorf("top ends with %v", err)
	}
}

// Elsewhere than on a terminal it says what to do, and prints all of it when told to.
func TestTop_WithoutATerminal(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	w.statuses("p", 3)
	code, stdout, stderr := w.admin(t.TempDir(), "top")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "top needs a terminal") || !strings.Contains(stderr, "weir top --once") {
		t.Errorf("top exits %d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = w.admin(t.TempDir(), "top", "--once")
	if code != 0 || stderr != "" {
		t.Errorf("top --once exits %d: %s", code, stderr)
	}
	for _, want := range []string{"1 node; ", "KEYS\n", "sms-send.phone  2        3         67 %", "ROUTES\n", "NODES\n", "UPSTREAMS\n", "1 of 1"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("top --once says\n%s\nwant %q in it", stdout, want)
		}
	}
	for args, want := range map[string]string{"--minutes=16": "write 1 to 15", "--every=1ms": "write 200ms or more", "--once --admin=127.0.0.1:1": "--admin"} {
		if code, _, stderr := command(t, t.TempDir(), append([]string{"top"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("top %s exits %d: %s; want %q", args, code, stderr, want)
		}
	}
}
