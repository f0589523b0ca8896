package test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
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
	screen.waitForText("Reset ", "Reason")
	screen.send("the phone was lent\r\r")
	screen.waitForText("reset sms-send.phone, on all nodes")
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
	for args, want := range map[string]string{"--minutes=16": "write 1 to 15", "-n0": "write 1 to 1000", "--rows=1001": "write 1 to 1000", "--every=1ms": "write 200ms or more", "--once --admin=127.0.0.1:1": "--admin"} {
		if code, _, stderr := command(t, t.TempDir(), append([]string{"top"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("top %s exits %d: %s; want %q", args, code, stderr, want)
		}
	}
}

// A topJSON is a part of what weir top --json prints.
type topJSON struct {
	Away string `json:"redis_unreachable"`
	Top  struct {
		Nodes  []struct{ Node, Said string }
		Limits []struct {
			Route   string
			Limit   string
			Refused struct {
				Total int
				Keys  []struct{ Count int }
			}
		}
	}
	Routes struct{ Routes []struct{ Name string } }
}

// topAsJSON runs weir top --json.
func (w *weir) topAsJSON(args ...string) (got topJSON) {
	w.t.Helper()
	code, stdout, stderr := w.admin(w.t.TempDir(), append([]string{"top", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
		w.t.Fatalf("top --json exits %d: %v %s%s", code, err, stdout, stderr)
	}
	return got
}

// All pages are there as JSON, with so many keys of each limit as were asked for.
func TestTop_AsJSON(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	for _, phone := range []string{"p", "q", "r"} {
		w.statuses(phone, 3)
	}
	for n, args := range map[int][]string{3: nil, 2: {"-n", "2"}} {
		got := w.topAsJSON(args...)
		if len(got.Top.Limits) != 1 || got.Top.Limits[0].Refused.Total != 6 || len(got.Top.Limits[0].Refused.Keys) != n || len(got.Routes.Routes) == 0 || got.Away != "" {
			t.Errorf("%+v; want %d keys", got, n)
		}
	}
}

// While Redis is away, be it gone or silent, top tells what the node that is asked has seen, and that
// this is all.
func TestTop_WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(s *redistest.Server){
		"gone": func(s *redistest.Server) { s.Kill() }, "silent": func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			w := start(t, redisYAML(server.Addr)+smsYAML("1/1h", ""))
			waitForMembership(t, server.Addr, 1)
			w.statuses("p", 3)
			take(server)
			got := w.topAsJSON()
			if len(got.Top.Limits) != 1 || got.Top.Limits[0].Refused.Total != 2 || got.Away == "" || len(got.Top.Nodes) != 2 || got.Top.Nodes[0].Said != "ok" {
				t.Errorf("%+v; want what this node refused, and why the others are unknown", got)
			}
			code, stdout, stderr := w.admin(t.TempDir(), "top", "--once")
			if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "redis unreachable: only what this node has seen (") || !strings.Contains(stdout, "all other nodes ") || !strings.Contains(stdout, " not asked: ") {
				t.Errorf("top --once exits %d: %s\n%s", code, stderr, stdout)
			}
		})
	}
}
