package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

func TestRollback_AndHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 2)
	w := nodes[0]
	if code, stdout, _ := w.admin(t.TempDir(), "history"); code != 0 || stdout != "nothing was pushed yet\n" {
		t.Errorf("history exits %d: %s", code, stdout)
	}
	if code, _, stderr := w.admin(t.TempDir(), "rollback"); code != 1 || !strings.Contains(stderr, "no earlier generation") {
		t.Errorf("rollback of nothing exits %d: %s", code, stderr)
	}
	for n := 1; n <= 22; n++ {
		if code, stdout, stderr := w.push(revisionYAML(n), "ann"); code != 0 {
			t.Fatalf("push %d exits %d: %s%s", n, code, stdout, stderr)
		}
	}
	if _, stdout, _ := w.push(revisionYAML(22), "ann"); !strings.Contains(stdout, "is this already") {
		t.Errorf("the same once more: %s", stdout)
	}
	_, stdout, _ := w.admin(t.TempDir(), "history")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	row := regexp.MustCompile(`^23  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  ann  [0-9a-f]{12}$`)
	if len(lines) != 20 || !row.MatchString(lines[0]) {
		t.Errorf("the history is\n%swant the last 20 pushes, first generation 23", stdout)
	}
	_, stdout, _ = w.admin(t.TempDir(), "history", "23")
	if !strings.Contains(stdout, "\n-    respond: {body: \"21\"") || !strings.Contains(stdout, "\n+    respond: {body: \"22\"") {
		t.Errorf("generation 23 changed\n%swant 21 to 22", stdout)
	}
	for i, step := range []struct {
		args []string
		want int
	}{{nil, 21}, {[]string{"10"}, 9}, {[]string{"23"}, 22}} {
		code, stdout, stderr := w.admin(t.TempDir(), append([]string{"rollback", "--author", "bob"}, step.args...)...)
		if code != 0 {
			t.Fatalf("rollback %v exits %d: %s%s", step.args, code, stdout, stderr)
		}
		allServe(t, nodes, step.want)
		if got := w.generation(); got != 24+i {
			t.Errorf("rollback %v is generation %d, want %d", step.args, got, 24+i)
		}
	}
	_, stdout, _ = w.admin(t.TempDir(), "history")
	if first, _, _ := strings.Cut(stdout, "\n"); !strings.HasSuffix(first, ", back to generation 23") || !strings.Contains(first, "  bob  ") {
		t.Errorf("the history begins with %q, want bob's way back to 23", first)
	}
	askedOnTerminal(t, nodes)
	if code, _, stderr := w.admin(t.TempDir(), "rollback", "999"); code != 1 || !strings.Contains(stderr, "no such generation") {
		t.Errorf("rollback 999 exits %d: %s", code, stderr)
	}
}

// askedOnTerminal rolls back on a terminal: what would change is shown, and nothing is done without a yes. Revision
// 22 is served, and was rolled back before, as were 21 and 9.
func askedOnTerminal(t *testing.T, nodes []*weir) {
	t.Helper()
	for _, step := range []struct{ answer, want string }{{"n", "nothing was changed"}, {"y", "generation 27 is served by 2 of 2 nodes"}} {
		m := onTerminal(t, exec.Command("weir", "rollback", "--admin", nodes[0].Admin), 120, 20)
		m.waitForText("Go back to generation 21 on all nodes? [y/N]")
		m.send(step.answer + "\r")
		m.waitForText(step.want)
	}
	allServe(t, nodes, 20)
}

// With a file to keep it in, what was pushed outlives a Redis that is away at the
// start; without one, the own file is served until Redis is back.
func TestPush_KeptForAStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewFaultProxy(t, server.Addr)
	config := redisDefaultYAML(p.Addr) + "reload: {source: redis, keep: kept.json}\n" + revisionYAML(0)
	w := start(t, config)
	if code, stdout, stderr := w.push(revisionYAML(1), "ann"); code != 0 {
		t.Fatalf("push exits %d: %s%s", code, stdout, stderr)
	}
	await.Until(t, "it is kept in a file for its owner only", func() bool {
		info, err := os.Stat(filepath.Join(w.Dir, "kept.json"))
		return err == nil && info.Mode().Perm() == 0o600
	})
	w.Signal(syscall.SIGTERM)
	w.Exit()
	p.Redirect("127.0.0.1:1")
	again := startWith(t, w.Dir, "-c", w.File)
	if got := again.servedRevision(); got != "1" {
		t.Errorf("without Redis it serves %s, want what was pushed", got)
	}
	p.Redirect(server.Addr)
	await.Until(t, "it is numbered as it was pushed", func() bool { return again.generation() == 2 })
	again.Signal(syscall.SIGTERM)
	again.Exit()

	p.Redirect("127.0.0.1:1")
	write(t, w.File, strings.Replace(config, ", keep: kept.json", "", 1)+weirtest.Listeners)
	bare := startWith(t, w.Dir, "-c", w.File)
	if got := bare.servedRevision(); got != "0" {
		t.Errorf("without Redis and without a kept file it serves %s, want its own", got)
	}
	p.Redirect(server.Addr)
	allServe(t, []*weir{bare}, 1)
}

// The file is no way round what was pushed, and whoever edits it is told.
func TestPush_FileIsNotServedAnyMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, followerYAML(server.Addr))
	w.edit(followerYAML(server.Addr) + "# more\n") // nothing is pushed yet: this is served
	await.Until(t, "the edit is served", func() bool { return w.generation() == 2 })
	w.push(revisionYAML(1), "ann")
	w.edit(redisYAML(server.Addr) + "reload: {source: redis}\n" + revisionYAML(5))
	w.WaitForLog("the file has changed and is not served; push it with weir push", nil)
	if status, body := w.reload(); status != http.StatusOK {
		t.Errorf("POST /reload is answered %d %s", status, body)
	}
	allServe(t, []*weir{w}, 1)
}

// Variables travel as they are written; a secret in the file does not travel.
func TestPush_SecretsStayHome(t *testing.T) {
	t.Setenv("TRAVELLER", "what only the nodes know")
	server := redistest.Start(t)
	w := start(t, followerYAML(server.Addr))
	if code, stdout, stderr := w.push("privacy: {hash_secret: \"${TRAVELLER}\"}\n"+revisionYAML(1), "ann"); code != 0 {
		t.Fatalf("push exits %d: %s%s", code, stdout, stderr)
	}
	_, stdout, _ := w.admin(t.TempDir(), "history", fmt.Sprint(w.generation()))
	if !strings.Contains(stdout, "${TRAVELLER}") || strings.Contains(stdout, "only the nodes") {
		t.Errorf("what was pushed is\n%swant the variable's name", stdout)
	}
	code, stdout, _ := w.push("privacy: {hash_secret: in-plain-sight-of-everybody}\n"+revisionYAML(2), "ann")
	if code != 1 || !strings.Contains(stdout, "next.yaml:1:24: privacy.hash_secret: ") || strings.Contains(stdout, "in-plain") {
		t.Errorf("push of a secret exits %d: %s", code, stdout)
	}
	allServe(t, []*weir{w}, 1)
}

func TestPush_ToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, followerYAML(server.Addr))
	for name, step := range map[string]struct{ text, says string }{
		"a mistake":          {revisionYAML(1) + "rootes: []\n", "next.yaml:6:1: unknown field"},
		"needs a restart":    {"listen: {http: \":1\"}\n" + revisionYAML(1), "listen"},
		"no file to include": {"include: [more.yaml]\n" + revisionYAML(1), "next.yaml:1:11: include"},
	} {
		if code, stdout, stderr := w.push(step.text, "ann"); code != 1 || !strings.Contains(stdout+stderr, step.says) {
			t.Errorf("push of %s exits %d: %s%s; want %q", name, code, stdout, stderr, step.says)
		}
	}
	alone := start(t, redisYAML(server.Addr)+revisionYAML(1))
	if code, _, stderr := alone.push(revisionYAML(2), "ann"); code != 1 || !strings.Contains(stderr, "reload: {source: redis}") {
		t.Errorf("push to one that serves its own file exits %d: %s", code, stderr)
	}
	waitForNodes(t, server.Addr, 2)
	if code, stdout, _ := w.push(revisionYAML(2), "ann"); code != 1 || !strings.Contains(stdout, "reads its own file") {
		t.Errorf("push beside one that serves its own file exits %d: %s", code, stdout)
	}
	if code, _, stderr := command(t, t.TempDir(), "push", "--admin", "127.0.0.1:1", alone.File); code != 1 || !strings.Contains(stderr, "--admin") {
		t.Errorf("push to nobody exits %d: %s", code, stderr)
	}
}

// With Redis it also says who would be refused now: by the counts that are there,
// each by what is left of it under the new rate.
func TestCheck_SaysWhoWouldBeRefusedNow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+smsYAML("5/1h", ""))
	for phone, n := range map[string]int{"a": 1, "b": 3, "c": 4} {
		w.statuses(phone, n)
	}
	dir := t.TempDir()
	for rate, want := range map[string]string{
		"3/1h": "sms-send.phone:1h would refuse 2 keys now, such as header:X-Phone=hash:",
		"4/1h": "sms-send.phone:1h would refuse 1 key now",
		"5/1h": "0 changes against generation 1\n",
		"1/2h": "checked all counts (0)\n1 change ", // another window begins empty
	} {
		write(t, dir+"/next.yaml", smsYAML(rate, ""))
		code, stdout, stderr := command(t, dir, "check", "next.yaml", "--against", w.Admin)
		if code != 0 || !strings.Contains(stdout, want) || strings.Contains(want, "checked all") && strings.Contains(stdout, "would refuse") {
			t.Errorf("with %s check exits %d:\n%s%swant %q", rate, code, stdout, stderr, want)
		}
	}
	if got := w.statuses("a", 4); got[3] != http.StatusOK {
		t.Errorf("looking has taken permits: %v", got)
	}
	write(t, dir+"/next.yaml", "listen: {http: \":1\"}\n"+smsYAML("5/1h", ""))
	if _, stdout, _ := command(t, dir, "check", "next.yaml", "--against", w.Admin); !strings.Contains(stdout, "restart") || !strings.Contains(stdout, "listen") {
		t.Errorf("what needs a restart is not said:\n%s", stdout)
	}
}

func TestCheck_AgainstARunningWeir(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("2/1h", ""))
	dir := t.TempDir()
	write(t, dir+"/next.yaml", smsYAML("1/1h", "")+"      - {name: more, key: global, rate: 5/1m}\n")
	code, stdout, stderr := command(t, dir, "check", "next.yaml", "--against", w.Admin)
	if code != 0 || !strings.Contains(stdout, "limit sms-send.more added") || !strings.Contains(stdout, "sms-send.phone: 2/1h → 1/1h\n") {
		t.Errorf("check --against exits %d:\n%s%s", code, stdout, stderr)
	}
	if got := w.generation(); got != 1 {
		t.Errorf("generation %d is served after a check", got)
	}
	write(t, dir+"/next.yaml", "rootes: []\n")
	if code, stdout, _ := command(t, dir, "check", "next.yaml", "--against", w.Admin); code != 1 || !strings.Contains(stdout, "next.yaml:1:1: ") {
		t.Errorf("check of a bad file exits %d: %s", code, stdout)
	}
}
