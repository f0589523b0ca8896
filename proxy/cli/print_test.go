package cli

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

func TestPush_SaysWhatCameOfIt(t *testing.T) {
	nodes := []view.NodeAnswer{{Node: "a", Said: "ok"}, {Node: "b", Said: "no such file"}}
	for _, row := range []struct {
		done admin.Pushed
		want string
		err  error
	}{
		{admin.Pushed{Generation: 3, Changed: true, Nodes: nodes[:1], Changes: []config.Change{{What: "limit", Name: "sms.phone", Is: "{rate: 1/1m}"}}, Warnings: []string{"weir.yaml:1:1: odd"}},
			"limit sms.phone added: {rate: 1/1m}\ngeneration 3 is served by 1 of 1 nodes\nweir.yaml:1:1: odd (warning)\n", nil},
		{admin.Pushed{Generation: 3, Changed: true, Nodes: nodes}, "b: no such file\ngeneration 3 is served by 1 of 2 nodes\n", nil},
		{admin.Pushed{Generation: 3}, "generation 3 is this already\n", nil},
		{admin.Pushed{Generation: 3, Restored: true}, "generation 3 is published again; redis had lost it\n", nil},
		{admin.Pushed{DryRun: true, Nodes: nodes[:1]}, "1 of 1 nodes could serve this; nothing has changed\n", nil},
		{admin.Pushed{DryRun: true, Nodes: nodes}, "b: no such file\n1 of 2 nodes could not serve this\n", errReported},
	} {
		var out bytes.Buffer
		if err := printPushed(&out, row.done); out.String() != row.want || !errors.Is(err, row.err) {
			t.Errorf("%+v is told as %q, %v; want %q, %v", row.done, out.String(), err, row.want, row.err)
		}
	}
}

func TestCheck_SaysWhatWouldChange(t *testing.T) {
	for _, row := range []struct {
		plan admin.Plan
		want string
	}{
		{admin.Plan{Generation: 2, Whole: true, Looked: 5}, "0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Looked: 50}, "checked 50 counts; there are more\n0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Unknown: "redis is away"}, "cannot tell which keys would be refused: redis is away\n0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Warning: "redis may evict counts", Unknown: "redis is away"}, "cannot tell which keys would be refused: redis is away\n0 changes against generation 2\nredis may evict counts (warning)\n"},
		{admin.Plan{Generation: 2, Restart: "listen needs a restart"}, "listen needs a restart\n0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Whole: true, Looked: 1, Changes: []config.Change{{What: "route", Name: "a", Was: "{x: 1}"}}, Refused: []admin.LimitRefusal{{Limit: "a.user:1m", Key: "user", Keys: 7, Named: []string{"abc", "def"}}}},
			"route a removed: {x: 1}\na.user:1m would refuse 7 keys now, such as user=hash:abc, hash:def\nchecked all counts (1)\n1 change against generation 2\n"},
	} {
		var out bytes.Buffer
		if printPlan(&out, row.plan); out.String() != row.want {
			t.Errorf("%+v is told as %q; want %q", row.plan, out.String(), row.want)
		}
	}
}

// A refusal is told with all its facts, one a line.
func TestExplained_RefusalsOfARunningWeir(t *testing.T) {
	away := errors.New("away")
	for _, row := range []struct {
		err       error
		out, want string
	}{
		{away, "", "away"},
		{&admin.Problem{Detail: "a generation is a number"}, "", "a generation is a number"},
		{&admin.Problem{Detail: "a", Problems: []string{"a", "b"}}, "a\nb\n", errReported.Error()},
		{&admin.Problem{Detail: "refused", Nodes: []view.NodeAnswer{{Node: "n", Said: "no"}, {Node: "m"}}}, "n: no\nm: no answer\n", "not all nodes agree; nothing has changed"},
	} {
		var out bytes.Buffer
		if err := reportRefusal(&out, row.err); err.Error() != row.want || out.String() != row.out {
			t.Errorf("%#v: %v, %q; want %s, %q", row.err, err, out.String(), row.want, row.out)
		}
	}
}

// startAdmin is a weir that answers each path with that text, as JSON.
func startAdmin(t *testing.T, answers map[string]string) (addr string, asked func() string) {
	t.Helper()
	var last string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last = r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Authorization") + " " + string(body)
		io.WriteString(w, answers[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string { return last }
}

func TestHistory_OneLineEach(t *testing.T) {
	at := time.Unix(0, 0).UTC().Format(time.RFC3339)
	entry := `"generation":3,"hash":"0123456789abcdef","author":"ann","at":"` + at + `","from":1`
	addr, asked := startAdmin(t, map[string]string{
		"/api/v1/history":   `{"history":[{` + entry + `}]}`,
		"/api/v1/history/3": `{` + entry + `,"diff":"-a\n+b\n"}`,
	})
	line := "3  " + at + "  ann  0123456789ab, back to generation 1\n"
	if code, out, stderr := runWeir("history", "--admin", addr, "--token", "secret"); code != exitOK || out != line || !strings.HasPrefix(asked(), "GET /api/v1/history Bearer secret") {
		t.Errorf("history = %d, %q, %q, asked by %s; want %q", code, out, stderr, asked(), line)
	}
	if code, out, stderr := runWeir("history", "3", "--admin", addr); code != exitOK || out != line+"-a\n+b\n" {
		t.Errorf("history 3 = %d, %q, %q", code, out, stderr)
	}
	addr, _ = startAdmin(t, map[string]string{"/api/v1/history": `{"history":[]}`})
	if code, out, _ := runWeir("history", "--admin", addr); code != exitOK || out != "nothing was pushed yet\n" {
		t.Errorf("history of nothing = %d, %q", code, out)
	}
	if code, _, stderr := runWeir("history", "--admin", "127.0.0.1:1"); code != exitFailure || !strings.Contains(stderr, "name its admin listener with --admin") {
		t.Errorf("history of nobody = %d, %q; want what to write", code, stderr)
	}
}

// Commands send what they are told, and the author if it is not.
func TestPushAndRollback_SayWhoAsks(t *testing.T) {
	addr, asked := startAdmin(t, map[string]string{"/api/v1/push": `{"generation":1}`, "/api/v1/rollback": `{"generation":1}`, "/api/v1/plan": `{"generation":1,"whole":true}`})
	path := writeConfig(t, "")
	if code, _, stderr := runWeir("push", path, "--admin", addr, "--author", "ann", "--dry-run"); code != exitOK || !strings.Contains(asked(), `"author":"ann"`) || !strings.Contains(asked(), `"dry_run":true`) {
		t.Errorf("push = %d, %q, asked by %s", code, stderr, asked())
	}
	if code, _, stderr := runWeir("rollback", "7", "--admin", addr); code != exitOK || !strings.Contains(asked(), `{"generation":7,"author":"","sender":"`+sender()+`"}`) {
		t.Errorf("rollback = %d, %q, asked by %s", code, stderr, asked())
	}
	if code, out, stderr := runWeir("check", path, "--against", addr); code != exitOK || !strings.HasSuffix(out, "0 changes against generation 1\n") {
		t.Errorf("check --against = %d, %q, %q", code, out, stderr)
	}
	if code, out, _ := runWeir("push", write(t, "{{{"), "--admin", addr); code != exitFailure || !strings.HasPrefix(out, "weir.yaml:2:1: ") {
		t.Errorf("push of what does not load = %d, %q; want the problem and its place", code, out)
	}
	me, err := user.Current()
	host, _ := os.Hostname()
	if got := sender(); err == nil && got != me.Username+"@"+host {
		t.Errorf("sender %q", got)
	}
}

// The nodes, the decisions and the audit trail are tables, and JSON for programs.
func TestRecords_AsTables(t *testing.T) {
	addr, asked := startAdmin(t, map[string]string{
		"/api/v1/nodes": `{"self":"a","nodes":[{"id":"a","hash":"0123456789","generation":4},{"id":"b","hash":"ab","generation":5,"source":"file","drift":true},{"id":"c","hash":"0123456789","generation":4}],
			"lost":[{"id":"d","generation":4}],"configurations":[{"hash":"0123456789","generation":4,"source":"redis","nodes":["a","c"]},{"hash":"ab","generation":5,"source":"file","nodes":["b"],"changes":[{"what":"route","name":"x","was":"{path: /a}","is":"{path: /b}"}]}]}`,
		"/api/v1/leader":    `{"self":"a","node":"c","tasks":[]}`,
		"/api/v1/audit":     `{"entries":[{"at":"2026-11-23T07:00:00Z","node":"a","who":"anna","action":"ban","for":"1h","masked":"phone=+86138****8000","hash":"f12d1813bfa7","one_node":true,"reason":"attack"},{"at":"2026-11-23T06:00:00Z","who":"ben","action":"push","error":"no"}],"next":"1-2"}`,
		"/api/v1/decisions": `{"decisions":[{"request_id":"R","at":"2026-11-23T07:00:00.5Z","method":"POST","path":"/v1","status":429,"summary":"refused by sms.phone"}],"nodes":[{"node":"a","said":"ok"},{"node":"b","said":""}]}`,
	})
	for _, c := range []struct{ args, out, asks string }{
		{"nodes", "a     ok ", ""},
		{"nodes", "2 of 3 serve generation 4, not b (generation 5 from file)\n", ""},
		{"nodes", "\nd     lost ", ""},
		{"nodes", "\non b:\n  route x: {path: /a} → {path: /b}\n", ""},
		{"nodes --json", `"lost": [`, ""},
		{"audit -n 2 --before 1-9", "2026-11-23T07:00:00Z  anna  ban for 1h  phone=+86138****8000  f12d1813bfa7  a only     attack\n", "/api/v1/audit?before=1-9&n=2"},
		{"audit", "  failed: no\nthere are more: weir audit --before 1-2\n", "/api/v1/audit?n=50"},
		{"audit --json", `"next": "1-2"`, ""},
		{"decisions --outcome refused --hash hash:f12d1813bfa7 --before 2026-11-23T08:00:00Z", "2026-11-23T07:00:00.500Z  R           429     POST    /v1   refused by sms.phone\n", "/api/v1/decisions?before=2026-11-23T08%3A00%3A00Z&key=f12d1813bfa7&n=50&outcome=refused"},
		{"decisions --json", `"request_id": "R"`, ""},
	} {
		code, out, stderr := runWeir(append(strings.Fields(c.args), "--admin", addr)...)
		if code != exitOK || !strings.Contains(out, c.out) || !strings.Contains(asked(), c.asks) {
			t.Errorf("weir %s = %d, %s, %s, asked %s; want %q", c.args, code, out, stderr, asked(), c.out)
		}
	}
	if code, _, stderr := runWeir("decisions", "--outcome", "no", "--admin", addr); code != exitUsage || !strings.Contains(stderr, "refused") {
		t.Errorf("an unknown outcome: %d, %s", code, stderr)
	}
}
