package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

func TestRollback_AndHistory(t *testing.T) {
	t.Parallel()
	nodes := startFollowers(t, redistest.Start(t).Addr, 2)
	w := nodes[0]
	if code, stdout, _ := w.admin(t.TempDir(), "history"); code != 0 || stdout != "nothing was pushed yet\n" {
		t.Errorf("history exits %d: %s", code, stdout)
	}
	w.runs(1, "no earlier generation", "rollback")
	for n := 1; n <= 22; n++ {
		w.pushes(0, "", revisionYAML(n), "ann")
	}
	w.pushes(0, "generation 23 is this already; nothing was pushed", revisionYAML(22), "ann")
	stdout := w.runs(0, "", "history")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	row := regexp.MustCompile(`^23  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  ann  [0-9a-f]{12}  -$`)
	if len(lines) != 21 || !strings.HasPrefix(lines[0], "GENERATION  TIME ") || !row.MatchString(strings.Join(strings.Fields(lines[1]), "  ")) {
		t.Errorf("the history is\n%swant the last 20 pushes, first generation 23", stdout)
	}
	w.runs(0, "\n-    respond: {body: \"21\"", "history", "23")
	w.runs(0, "\n+    respond: {body: \"22\"", "history", "23")
	for i, step := range []struct {
		args []string
		want int
	}{{nil, 21}, {[]string{"10"}, 9}, {[]string{"23"}, 22}} {
		stdout := w.runs(0, "", append([]string{"rollback", "--author", "bob"}, step.args...)...)
		allServe(t, nodes, step.want)
		if !regexp.MustCompile(`^back to generation \d+, which was served (20\d\d-\d\d-\d\d \d\d:\d\d:\d\d) UTC to 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n`).MatchString(stdout) {
			t.Errorf("rollback %v says %q; want to what it leads, and when that was served", step.args, stdout)
		}
		if got := w.generation(); got != 24+i {
			t.Errorf("rollback %v is generation %d, want %d", step.args, got, 24+i)
		}
	}
	stdout = w.runs(0, "", "history")
	if first := strings.Split(stdout, "\n")[1]; !strings.HasSuffix(first, "  23") || !strings.Contains(first, "  bob  ") {
		t.Errorf("the history begins with %q, want bob's way back to 23", first)
	}
	askedOnTerminal(t, nodes)
	w.runs(1, "generation 999 is not in the history", "rollback", "999")
}

// askedOnTerminal rolls back on a terminal: what would change is shown, and nothing is done without a yes. Revision
// 22 is served, and was rolled back before, as were 21 and 9.
func askedOnTerminal(t *testing.T, nodes []*weir) {
	t.Helper()
	for _, step := range []struct{ answer, want string }{{"n", "nothing was changed"}, {"y", "generation 27 is served by 2 of 2 nodes"}} {
		m := onTerminal(t, exec.Command("weir", "rollback", "--admin", nodes[0].Admin), 120, 20)
		m.waitForText("Go back to generation 21, which was served 20")
		m.waitForText(" UTC, on all nodes? [y/N]")
		m.send(step.answer + "\r")
		m.waitForText(step.want)
	}
	allServe(t, nodes, 20)
}

// Variables travel as they are written; a secret in the file does not travel.
func TestPush_SecretsStayHome(t *testing.T) {
	t.Setenv("TRAVELLER", "what only the nodes know")
	w := start(t, followerYAML(redistest.Start(t).Addr))
	w.pushes(0, "", "privacy: {hash_secret: \"${TRAVELLER}\"}\n"+revisionYAML(1), "ann")
	stdout := w.runs(0, "${TRAVELLER}", "history", fmt.Sprint(w.generation()))
	if strings.Contains(stdout, "only the nodes") {
		t.Errorf("what was pushed is\n%swant the variable's name", stdout)
	}
	code, _, stderr := w.push("privacy: {hash_secret: in-plain-sight-of-everybody}\n"+revisionYAML(2), "ann")
	if code != 1 || !strings.Contains(stderr, "next.yaml:1:24: privacy.hash_secret: ") || strings.Contains(stderr, "in-plain") {
		t.Errorf("push of a secret exits %d: %s", code, stderr)
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
	alone.pushes(1, "reload: {source: redis}", revisionYAML(2), "ann")
	waitForNodes(t, server.Addr, 2)
	w.pushes(1, "reads its own file", revisionYAML(2), "ann") // beside one that serves its own file
	if code, _, stderr := command(t, t.TempDir(), "push", "--admin", "127.0.0.1:1", alone.File); code != 1 || !strings.Contains(stderr, "--admin") {
		t.Errorf("push to nobody exits %d: %s", code, stderr)
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
	if !strings.Contains(stdout, "next.yaml:7:28: routes[0].limits[0].key: as it is sent one phone has many keys") || !strings.HasSuffix(stdout, "(warning)\n") {
		t.Errorf("check --against keeps the warnings of check to itself:\n%s", stdout)
	}
	if got := w.generation(); got != 1 {
		t.Errorf("generation %d is served after a check", got)
	}
	write(t, dir+"/next.yaml", "rootes: []\n")
	if code, stdout, _ := command(t, dir, "check", "next.yaml", "--against", w.Admin); code != 1 || !strings.Contains(stdout, "next.yaml:1:1: ") {
		t.Errorf("check of a bad file exits %d: %s", code, stdout)
	}
}

var recordAs = flag.String("record", "", "write testdata/recorded/`VERSION`.json, what this release leaves after two pushes")

// A recordedPush is what a release left after two pushes, of the revisions 1 and 2.
type recordedPush struct {
	Redis map[string][]string // keys that stay: "string", "list" or "hash", then the values
	Kept  string              // the file of reload.keep
}

// recordPush runs two pushes of this Weir and writes what is left.
func recordPush(t *testing.T, file string) {
	t.Helper()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+"reload: {source: redis, keep: kept.json}\n"+revisionYAML(0))
	w.push(revisionYAML(1), "ann")
	w.push(revisionYAML(2), "bob")
	allServe(t, []*weir{w}, 2)
	var r recordedPush
	await.Until(t, "the second push is kept", func() bool {
		text, err := os.ReadFile(filepath.Join(w.Dir, "kept.json"))
		r.Kept = string(text)
		return err == nil && strings.Contains(r.Kept, `"bob"`)
	})
	client := redisClient(t, server.Addr)
	r.Redis = map[string][]string{}
	ctx := t.Context()
	for _, key := range client.Keys(ctx, "*").Val() {
		if ttl := client.PTTL(ctx, key).Val(); ttl > 0 && ttl < time.Hour {
			continue // of the node that runs
		}
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			r.Redis[key] = []string{kind, client.Get(ctx, key).Val()}
		case "list":
			r.Redis[key] = append([]string{kind}, client.LRange(ctx, key, 0, -1).Val()...)
		case "hash":
			r.Redis[key] = []string{kind}
			for field, value := range client.HGetAll(ctx, key).Val() {
				r.Redis[key] = append(r.Redis[key], field, value)
			}
		default:
			t.Logf("%s, a %s, is not recorded", key, kind)
		}
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text)+"\n")
}

// recordedPushes are those of all releases, by the name of the file.
func recordedPushes(t *testing.T) map[string]recordedPush {
	t.Helper()
	if *recordAs != "" {
		recordPush(t, filepath.Join("testdata", "recorded", *recordAs+".json"))
	}
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no release is recorded: %v", err)
	}
	all := map[string]recordedPush{}
	for _, file := range files {
		text := filetest.Read(t, file)
		var r recordedPush
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		all[file] = r
	}
	return all
}

// What an earlier release pushed is served from Redis, listed and rolled back to; and from
// the file in which it was kept while Redis is away. -record VERSION records this one.
func TestRecorded_PushesOfReleasesAreServed(t *testing.T) {
	t.Parallel()
	for file, r := range recordedPushes(t) {
		server := redistest.Start(t)
		client := redisClient(t, server.Addr)
		for key, values := range r.Redis {
			var err error
			switch ctx := t.Context(); values[0] {
			case "string":
				err = client.Set(ctx, key, values[1], 0).Err()
			case "list":
				err = client.RPush(ctx, key, values[1:]).Err()
			case "hash":
				err = client.HSet(ctx, key, values[1:]).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w := start(t, followerYAML(server.Addr))
		allServe(t, []*weir{w}, 2)
		_, history, _ := w.admin(t.TempDir(), "history")
		if !strings.Contains(history, "  ann  ") || !strings.Contains(history, "  bob  ") {
			t.Errorf("%s: the history is %s", file, history)
		}
		w.runs(0, "", "rollback")
		allServe(t, []*weir{w}, 1)

		dir := t.TempDir()
		write(t, filepath.Join(dir, "kept.json"), r.Kept)
		write(t, filepath.Join(dir, "weir.yaml"), redisYAML("127.0.0.1:1")+"reload: {source: redis, keep: kept.json}\n"+revisionYAML(0)+weirtest.Listeners)
		if got := startWith(t, dir, "-c", "weir.yaml").servedRevision(); got != "2" {
			t.Errorf("%s: without Redis it serves revision %s, want the one that was kept", file, got)
		}
	}
}
