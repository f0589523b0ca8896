package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

func TestPush_SaysWhatCameOfIt(t *testing.T) {
	nodes := []view.NodeAnswer{{Node: "a", Said: "ok"}, {Node: "b", Said: "no such file"}}
	change, line := []config.Change{{What: "route", Name: "a", Is: "{}"}}, "route a added: {}\n"
	for _, row := range []struct {
		done admin.Pushed
		want string
		err  error
	}{
		{admin.Pushed{Generation: 3, Changed: true, Nodes: nodes[:1], Changes: []config.Change{{What: "limit", Name: "sms.phone", Is: "{rate: 1/1m}"}}, Warnings: []string{"weir.yaml:1:1: odd"}},
			"generation 3 is served by 1 of 1 nodes\nlimit sms.phone added: {rate: 1/1m}\nweir.yaml:1:1: odd (warning)\n", nil},
		{admin.Pushed{Generation: 3, Changed: true, Nodes: nodes}, "generation 3 is served by 1 of 2 nodes\nb: no such file\n", nil},
		{admin.Pushed{Generation: 3, Nodes: nodes[:1], Changes: slices.Repeat(change, 10)}, "generation 3 is served by 1 of 1 nodes\n" + strings.Repeat(line, 10), nil},
		{admin.Pushed{Generation: 3, Nodes: nodes[:1], Changes: slices.Repeat(change, 33)},
			"generation 3 is served by 1 of 1 nodes\n" + strings.Repeat(line, 10) + "and 23 other changes; weir history 3 lists all\n", nil},
		{admin.Pushed{DryRun: true, Nodes: nodes[:1], Changes: slices.Repeat(change, 11)},
			"1 of 1 nodes could serve this; nothing has changed\n" + strings.Repeat(line, 10) + "and 1 other change; --json lists all\n", nil},
		{admin.Pushed{Generation: 5, From: 3, Served: "A to B", Nodes: nodes[:1]}, "back to generation 3, which was served A to B\ngeneration 5 is served by 1 of 1 nodes\n", nil},
		{admin.Pushed{Generation: 4, From: 3, Served: "A to B", DryRun: true, Nodes: nodes[:1]},
			"would go back to generation 3, which was served A to B\n1 of 1 nodes could serve this; nothing has changed\n", nil},
		{admin.Pushed{Generation: 3}, "generation 3 is this already; nothing was pushed, and nothing has changed\n", nil},
		{admin.Pushed{Generation: 3, Restored: true}, "generation 3 is published again; redis had lost it\n", nil},
		{admin.Pushed{DryRun: true, Nodes: nodes[:1]}, "1 of 1 nodes could serve this; nothing has changed\n", nil},
		{admin.Pushed{DryRun: true, Nodes: nodes}, "1 of 2 nodes could serve this; nothing has changed\nb: no such file\n", errReported},
	} {
		var out bytes.Buffer
		if err := (answerFlags{}).finish(Env{Stdout: &out}, row.done, nil); out.String() != row.want || !errors.Is(err, row.err) {
			t.Errorf("%+v is told as %q, %v; want %q, %v", row.done, out.String(), err, row.want, row.err)
		}
	}
}

func TestCheck_SaysWhatWouldChange(t *testing.T) {
	change := []config.Change{{What: "route", Name: "a", Was: "{x: 1}"}}
	for _, row := range []struct {
		plan admin.Plan
		want string
	}{
		{admin.Plan{Generation: 2, Whole: true, Looked: 5}, "0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Looked: 50, Changes: change}, "1 change against generation 2\nroute a removed: {x: 1}\nchecked 50 counts; there are more\n"},
		{admin.Plan{Generation: 2, Unknown: "redis is away"}, "0 changes against generation 2\n"},
		{admin.Plan{Generation: 2, Unknown: "redis is away", Changes: change}, "1 change against generation 2\nroute a removed: {x: 1}\ncannot tell which keys would be refused: redis is away\n"},
		{admin.Plan{Generation: 2, Warning: "redis may evict counts", Unknown: "redis is away"}, "0 changes against generation 2\nredis may evict counts (warning)\n"},
		{admin.Plan{Generation: 2, Whole: true, Warnings: []string{"weir.yaml:1:1: mind this"}}, "0 changes against generation 2\nweir.yaml:1:1: mind this (warning)\n"},
		{admin.Plan{Generation: 2, Restart: "listen needs a restart"}, "0 changes against generation 2\nlisten needs a restart\n"},
		{admin.Plan{Generation: 2, Whole: true, Looked: 1, Changes: change, Refused: []admin.LimitRefusal{{Limit: "a.user:1m", Key: "user", Keys: 7, Named: []string{"abc", "def"}}}},
			"1 change against generation 2\nroute a removed: {x: 1}\na.user:1m would refuse 7 keys now, such as user=hash:abc, hash:def\nchecked all counts (1), but those of limits with plans, overrides, redisson, distinct, cooldown or scope: per_instance\n"},
	} {
		var out bytes.Buffer
		if printPlan(&out, row.plan); out.String() != row.want {
			t.Errorf("%+v is told as %q; want %q", row.plan, out.String(), row.want)
		}
	}
}

// What is wrong with the command line itself has an exit code of its own, whatever the command, and is told before
// anything is asked.
func TestRun_MisuseHasItsExitCode(t *testing.T) {
	path := writeConfig(t, "")
	for args, want := range map[string]string{
		"top --minutes 99":                              "--minutes 99: ",
		"top --every 1ms":                               "--every 1ms: too often",
		"top -n 0":                                      "-n 0: write 1 to 1000",
		"decisions --hash zz":                           "--hash zz: write the 12 digits",
		"keys grant a=1":                                "weir: write --permits=N; ",
		"decisions -n 0":                                "-n 0: write 1 to 1000",
		"decisions -n 1001":                             "-n 1001: write 1 to 1000",
		"audit -n 0":                                    "-n 0: write 1 to 500",
		"audit -n 501":                                  "-n 501: write 1 to 500",
		"keys get phone":                                "weir: phone: write KEY=VALUE",
		"keys get id:0123456789ab-0123":                 "write its name, too (phone=id:..., phone=hash:...)\n",
		"keys grant a=1 --permits 0":                    "--permits 0: write a whole number from 1",
		"keys ban a=1":                                  "weir: write --for=DURATION; ",
		"keys ban a=1 --for soon":                       "--for soon: ",
		"keys plan a=1 --for 1h":                        "no plan is named",
		"keys plan a=1 pro --for soon":                  "--for soon: ",
		"outcome phone verified":                        "write KEY=VALUE",
		"maintenance --for 1h":                          "weir maintenance on --for 1h\n",
		"maintenance off --for 1h":                      "weir maintenance on --for 1h\n",
		"maintenance --reason x":                        "weir maintenance on or off\n",
		"maintenance on --for soon":                     "--for soon: ",
		"explain GET":                                   "write the URL after it",
		"explain /a":                                    "the method comes first",
		"explain x -c " + path:                          "a request id needs a running weir",
		"explain get /a -c " + path:                     "write GET",
		"explain GET a -c " + path:                      "is not a URL",
		"explain GET /a -H x -c " + path:                "write 'NAME: VALUE'",
		"explain GET /a --client x -c " + path:          "not an IP address",
		"explain GET /a -d x -c " + path:                "leave out -d",
		"simulate -c " + path + " " + path + " " + path: "is named twice",
		"simulate -c " + path + " --field x " + path:    "write WHAT=NAME",
	} {
		if code, _, stderr := runWeir(strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("weir %s = %d, %q; want %d and %q", args, code, stderr, exitUsage, want)
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
		{&admin.Problem{Detail: "refused", Nodes: []view.NodeAnswer{{Node: "n", Said: "no"}, {Node: "m"}, {Node: "o", Said: "ok"}}}, "n: no\nm: no answer\n", "not all nodes agree; nothing has changed"},
	} {
		var out bytes.Buffer
		if err := report(&out, row.err); err.Error() != row.want || out.String() != row.out {
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
	line := "GENERATION  TIME                  AUTHOR  HASH          BACK TO\n3           " + at + "  ann     0123456789ab  1\n"
	if code, out, stderr := runWeir("history", "--admin", addr, "--token", "secret"); code != exitOK || out != line || !strings.HasPrefix(asked(), "GET /api/v1/history Bearer secret") {
		t.Errorf("history = %d, %q, %q, asked by %s; want %q", code, out, stderr, asked(), line)
	}
	if code, out, stderr := runWeir("history", "3", "--admin", addr); code != exitOK || out != line+"-a\n+b\n" {
		t.Errorf("history 3 = %d, %q, %q", code, out, stderr)
	}
	addr, _ = startAdmin(t, map[string]string{"/api/v1/history/3": `{` + entry + `,"oldest":true}`})
	if _, out, _ := runWeir("history", "3", "--admin", addr); out != line+"the oldest push that is kept; what was served before it is not known, so this is all of it\n" {
		t.Errorf("history of the oldest = %q", out)
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
	if code, out, stderr := runWeir("check", path, "--against", addr); code != exitOK || !strings.HasPrefix(out, "0 changes against generation 1\n") {
		t.Errorf("check --against = %d, %q, %q", code, out, stderr)
	}
	if code, _, stderr := runWeir("check", path, "--against", "127.0.0.1:1"); code != exitFailure || !strings.HasSuffix(stderr, "; name its admin listener with --against\n") {
		t.Errorf("check --against nobody = %d, %q", code, stderr)
	}
	bad := write(t, "{{{")
	refused := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"detail":"weir.yaml:2:1: a","problems":["weir.yaml:2:1: a","weir.yaml:3:1: b"]}`)
	}))
	defer refused.Close()
	for _, form := range [][]string{{}, {"--json"}} {
		if code, out, stderr := runWeir(append([]string{"push", bad, "--admin", addr}, form...)...); code != exitFailure || out != "" || !strings.HasPrefix(stderr, bad+":2:1: ") {
			t.Errorf("push %q of a wrong file = %d, %q, %q; want its problems on standard error alone", form, code, out, stderr)
		}
		if code, out, stderr := runWeir(append([]string{"push", path, "--admin", refused.URL}, form...)...); code != exitFailure || out != "" || stderr != "weir.yaml:2:1: a\nweir.yaml:3:1: b\n" {
			t.Errorf("push %q of what a node refuses = %d, %q, %q; want its problems on standard error alone", form, code, out, stderr)
		}
	}
	me, err := user.Current()
	host, _ := os.Hostname()
	if got := sender(); err == nil && got != me.Username+"@"+host {
		t.Errorf("sender %q", got)
	}
}

// A writer is called with what is written.
type writer func(text string)

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

// Whoever pushes learns whom that waits for while it does.
func TestPush_NamesWhomItWaitsFor(t *testing.T) {
	told := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			io.WriteString(w, `{"awaited":["b","c"]}`)
			return
		}
		if text := <-told; !strings.HasPrefix(text, "waiting for the answer of b, c; ") {
			t.Errorf("it says %q", text)
		}
		io.WriteString(w, `{"generation":1}`)
	}))
	defer s.Close()
	for _, args := range [][]string{{"push", writeConfig(t, "")}, {"rollback", "1"}} {
		var out bytes.Buffer
		code := Run(t.Context(), append(args, "--admin", s.URL), Env{Stdout: &out, Stderr: writer(func(text string) { told <- text })})
		if code != exitOK || !strings.HasSuffix(out.String(), "generation 1 is this already; nothing was pushed, and nothing has changed\n") {
			t.Errorf("weir %v = %d, %s", args, code, out.String())
		}
	}
}

// The nodes, the decisions and the audit trail are tables, and JSON for programs.
func TestRecords_AsTables(t *testing.T) {
	addr, asked := startAdmin(t, map[string]string{
		"/api/v1/nodes": `{"self":"a","nodes":[{"id":"a","hash":"0123456789","generation":4},{"id":"b","hash":"ab","generation":5,"source":"file","drift":true},{"id":"c","hash":"0123456789","generation":4,"calls_by_slot":["r1:6379","r2:6379"]}],
			"lost":[{"id":"d","generation":4}],"configurations":[{"hash":"0123456789","generation":4,"source":"redis","nodes":["a","c"]},{"hash":"ab","generation":5,"source":"file","nodes":["b"],"changes":[{"what":"route","name":"x","was":"{path: /a}","is":"{path: /b}"}]}]}`,
		"/api/v1/leader":    `{"self":"a","node":"c","tasks":[]}`,
		"/api/v1/audit":     `{"entries":[{"at":"2026-11-23T07:00:00Z","node":"a","who":"anna","action":"ban","for":"1h","masked":"phone=+86138****8000","hash":"f12d1813bfa7","one_node":true,"reason":"attack"},{"at":"2026-11-23T06:30:00Z","who":"ben","action":"unban","masked":"ip=1","behind":["b","c"]},{"at":"2026-11-23T06:00:00Z","who":"ben","action":"push","error":"no"}],"next":"1-2"}`,
		"/api/v1/decisions": `{"decisions":[{"request_id":"R","at":"2026-11-23T07:00:00.5Z","method":"POST","path":"/v1","status":429,"summary":"refused by sms.phone"}],"nodes":[{"node":"a","said":"ok"},{"node":"b","said":""}]}`,
	})
	for _, c := range []struct{ args, out, asks string }{
		{"nodes", "a     ok ", ""},
		{"nodes", "2 of 3 serve generation 4, not b (generation 5 from file)\n", ""},
		{"nodes", "\nd     lost ", ""},
		{"nodes", "\nc sends a call for each slot to r1:6379, r2:6379: Redis 7.0 takes one for all\n", ""},
		{"nodes", "\non b:\n  route x: {path: /a} → {path: /b}\n", ""},
		{"nodes --json", `"lost": [`, ""},
		{"audit -n 2 --before 1-9", "2026-11-23T07:00:00Z  anna  ban for 1h  phone=+86138****8000  f12d1813bfa7  a only        attack\n", "/api/v1/audit?before=1-9&n=2"},
		{"audit", "  failed: no\nthere are more: weir audit --before 1-2\n", "/api/v1/audit?n=50"},
		{"audit", "  push        -                     -             -             failed: no\n", ""},
		{"audit", "  unban       ip=1                  -             all but b, c  -\n", ""},
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

// A request's record is printed with each fact that there is, and no other.
func TestExplain_WhatWasDecided(t *testing.T) {
	whole := `{"node":"b","request_id":"1","at":"2026-01-02T03:04:05.000000006Z","route":"sms","method":"POST","path":"/sms","status":429,"outcome":"refused","summary":"refused by sms.phone 5/1h, banned",
		"list":"deny","new_keys":"refused","fallback":"local","upstream":"u","error":"away","repeated":true,"waited":true,"exempt":true,"ban_began":true,"limits":[
		{"limit":"sms.phone","rate":"phone-1h","result":"refused","banned":true,"left":0,"wait_ms":0.25,"key":"phone","masked":"+86138****8000","hash":"ab"},
		{"limit":"sms.all","rate":"all-1m","result":"not_asked","key":"global"}]}`
	all := `POST /sms: 429, refused
refused by sms.phone 5/1h, banned
  at             2026-01-02T03:04:05.000000006Z
  node           b
  route          sms
  upstream       u
  list           deny
  new keys       refused
  without redis  local
  error          away
  repeats a counted request
  waited for a permit
  no limit applied
  this refusal started a ban
  LIMIT      RATE      RESULT           LEFT  WAIT  KEY             HASH
  sms.phone  phone-1h  refused, banned  0     1ms   +86138****8000  ab
`
	for _, row := range []struct{ answer, out, stderr string }{
		{`{"decisions":[` + whole + `]}`, all, ""},
		{`{"nodes":[{"node":"a","said":"ok"},{"node":"c","said":"too busy"},{"node":"d"}],"decisions":[{"node":"a","at":"2026-01-02T03:04:05Z","method":"GET","path":"/","status":200,"outcome":"allowed"}]}`,
			"GET /: 200, allowed\n  at    2026-01-02T03:04:05Z\n  node  a\n", "c: too busy\nd: no answer\n"},
		{`{"decisions":[]}`, "", `weir: no node has a record of request "some-id": the id is in the response field X-Request-Id and in the log; only the last few thousand requests are kept` + "\n"},
	} {
		addr, asked := startAdmin(t, map[string]string{"/api/v1/decisions": row.answer})
		code, out, stderr := runWeir("explain", "some-id", "--admin", addr, "--token", "secret")
		if out != row.out || stderr != row.stderr || (code == exitOK) != (row.out != "") {
			t.Errorf("%s is told as %d, %q, %q; want\n%s%s", row.answer, code, out, stderr, row.out, row.stderr)
		}
		if got := asked(); !strings.HasPrefix(got, "GET /api/v1/decisions?request_id=some-id Bearer secret") {
			t.Errorf("asked by %s", got)
		}
	}
	if code, _, stderr := runWeir("explain", "some-id", "-c", "weir.yaml"); code != exitUsage || !strings.Contains(stderr, "a request id needs a running weir; leave out -c") {
		t.Errorf("an id and a file: %d, %q", code, stderr)
	}
}

// What a running weir would do is asked of it: it knows methods that no file here names.
func TestExplain_AsksARunningWeir(t *testing.T) {
	addr, asked := startAdmin(t, map[string]string{
		"/api/v1/routes":  `{"routes":[{"name":"a","methods":["BREW"]}]}`,
		"/api/v1/explain": `{"method":"BREW"}`,
	})
	if code, _, stderr := runWeir("explain", "--admin", addr, "BREWS", "/a"); code != exitUsage || stderr != "weir: method \"BREWS\": not a known method; did you mean BREW?\n" {
		t.Errorf("a method that no route has: %d, %q", code, stderr)
	}
	t.Setenv("WEIR_ADMIN", addr)
	if code, out, stderr := runWeir("explain", "BREW", "/a"); code != exitOK || !strings.Contains(out, "\nby generation 0 of the weir at "+addr+"\n") {
		t.Errorf("explain with WEIR_ADMIN = %d, %q, %q", code, out, stderr)
	}
	file := writeConfig(t, "")
	if code, out, stderr := runWeir("explain", "-c", file, "GET", "/a"); code != exitOK || !strings.Contains(out, "\nby "+file+" alone, with nothing counted\n") {
		t.Errorf("explain by a file with WEIR_ADMIN = %d, %q, %q", code, out, stderr)
	}
	t.Setenv("WEIR_ADMIN", "")
	code, out, stderr := runWeir("explain", "--admin", addr, "--json", "BREW", "/a", "-H", "x-phone: 1", "-H", "X-Phone:2", "-d", "{}")
	if code != exitOK || !strings.Contains(out, `"method": "BREW"`) {
		t.Errorf("explain = %d, %q, %q", code, out, stderr)
	}
	for _, want := range []string{"POST /api/v1/explain ", `"X-Phone":["1","2"]`, `"Content-Type":["application/json"]`} {
		if !strings.Contains(asked(), want) {
			t.Errorf("asked %s; want %s", asked(), want)
		}
	}
	if runWeir("explain", "--admin", addr, "BREW", "/a", "-d", "a=1"); !strings.Contains(asked(), `"Content-Type":["application/x-www-form-urlencoded"]`) {
		t.Errorf("a body that is no JSON is sent as %s", asked())
	}
}

// brokenPipe is where nobody reads any more.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestKeys_StandingInText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	window := view.WindowStanding{Rate: "1/1m", Used: 1, Next: at.Add(time.Millisecond), Full: at.Add(90 * time.Second)}
	odd := view.WindowStanding{Rate: "5/1h", Left: 5, Overflow: true, Unreadable: true}
	s := view.KeyStanding{At: at, Notes: []string{"one", "two"}, Limits: []view.LimitStanding{
		{Route: "sms", Limit: "phone", Mode: "enforce", ID: "id:a", Masked: "phone=1**", Hash: "ab", BannedUntil: at.Add(time.Hour), Windows: []view.WindowStanding{window, odd}, Penalty: &view.PenaltyStanding{Refused: 2, After: 3, Ban: view.Span(time.Hour)}},
		{Route: "all", Limit: "fan", ID: "id:b", Masked: "phone=2**", Hash: "cd", Mode: "shadow", Derived: true, Java: true, Store: "local", Scope: "per_instance", Windows: []view.WindowStanding{{Rate: "1/1m", Left: 1}, {Rate: "3/1h", Used: 9, Left: 5, Conversion: &view.ConversionStanding{Confirmed: 2, Allowed: 14}}}},
		{Route: "sms", Limit: "other", ID: "id:a", Masked: "phone=1**", Hash: "ab", Unknown: "redis is away"},
	}}
	want := `refused now by sms.phone (banned) until 04:04:05 UTC (1h)

phone=1**  hash ab  id:a
  LIMIT      RATE  USED  LEFT  NEXT IN  FULL IN  BANNED FOR  
  sms.phone  1/1m  1     0     1s       1m30s    1h          refused 2 of 3 before a ban of 1h
  sms.phone  5/1h  0     5     -        -        1h          memory is full: shares a count with other keys; the store holds something else here; reset heals it; refused 2 of 3 before a ban of 1h
  sms.other  -     -     -     -        -        -           redis is away

phone=2**  hash cd  id:b
  LIMIT    RATE  USED  LEFT  NEXT IN  FULL IN  BANNED FOR  
  all.fan  1/1m  0     1     -        -        -           shadow: refuses nobody; counts for others too; shared with Java; this node's share; this node's count
  all.fan  3/1h  9     5     -        -        -           shadow: refuses nobody; counts for others too; shared with Java; this node's share; this node's count; allows 14: 2 verified in the window
note: one
note: two
`
	var out bytes.Buffer
	k := keysText{Writer: bufio.NewWriter(&out), at: at}
	k.standing(s)
	if err := k.Flush(); out.String() != want || err != nil {
		t.Errorf("a key stands, %v:\n%s\nwant\n%s", err, out.String(), want)
	}
	k = keysText{Writer: bufio.NewWriter(brokenPipe{}), at: at}
	if k.standing(s); k.Flush() == nil {
		t.Error("what nobody reads is written without an error")
	}
}

func TestKeys_ChangesInText(t *testing.T) {
	changed := []view.LimitStanding{{Route: "sms", Limit: "phone"}}
	for _, row := range []struct {
		result view.KeyResult
		want   string // the first line, and those of what was not changed
	}{
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyReset}, Everywhere: true, Changed: changed}, "reset sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(3)}, "granted 3 permits of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(1)}, "granted 1 of 3 permits, because no more were used, of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(0)}, "granted nothing, because no permit was used, of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, Changed: changed}, "banned for 1h by sms.phone, on this node only"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyUnban}, Everywhere: true, Changed: append(changed, view.LimitStanding{Route: "sms", Limit: "hour"}), Skipped: []view.SkippedLimit{{Route: "sms", Limit: "day", Why: "no ban"}}, Notes: []string{"later"}},
			"ended bans by sms.phone, sms.hour, on all nodes\nnot changed: sms.day: no ban\nnote: later"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyUnban}, Everywhere: true, Changed: append(changed, view.LimitStanding{Route: "sms", Limit: "hour", Unaffected: true})},
			"ended bans by sms.phone, on all nodes; there was no ban to end by sms.hour"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyReset}, Everywhere: true, Changed: []view.LimitStanding{{Route: "sms", Limit: "hour", Unaffected: true}}, Now: view.KeyVerdict{Refused: true, Text: "still refused on all nodes"}},
			"nothing to reset under sms.hour\nstill refused on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, Behind: []string{"b", "c"}, Changed: changed},
			"banned for 1h by sms.phone, on all nodes but b, c, not heard from: they follow once they are back"},
	} {
		var out bytes.Buffer
		k := keysText{Writer: bufio.NewWriter(&out)}
		k.result(row.result)
		k.Flush()
		var lines []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, " node") || strings.HasPrefix(line, "not") || strings.HasPrefix(line, "still") {
				lines = append(lines, line)
			}
		}
		if got := strings.TrimSuffix(strings.Join(lines, ""), "\n"); got != row.want {
			t.Errorf("%+v is told as %q; want %q", row.result, got, row.want)
		}
	}
}

// granted is the state of a key after so many permits came back.
func granted(n int64) []view.LimitStanding {
	return []view.LimitStanding{{Route: "sms", Limit: "phone", Windows: []view.WindowStanding{{Rate: "1/1m", Granted: min(n, 1)}, {Rate: "9/1h", Granted: n}}}}
}

func TestProgress_OnATerminalOnly(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.show(5)
	p.end()
	if out.Len() != 0 || isTerminal(&out) {
		t.Errorf("%q on what is no terminal", out.String())
	}
	p = &progress{out: &out, size: 200}
	_, _ = io.WriteString(p, strings.Repeat("x", 100))
	p.show(7)
	p.show(8) // too soon
	if want := "\r[" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "]  50 %  7 lines\x1b[K"; out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
	out.Reset()
	p.end()
	if out.String() != "\r\x1b[K" {
		t.Errorf("%q; want that the bar goes", out.String())
	}
	if got := (&progress{endless: true}).line(9); got != "9 lines" {
		t.Errorf("without a known end: %q", got)
	}
	if p = (&progress{size: 10, read: 20}); !strings.Contains(p.line(1), "100 %") {
		t.Errorf("%q; a file that grows", p.line(1))
	}
}

func TestPalette_ColoursTerminalsOnly(t *testing.T) {
	if (palette{}).bad("a") != "a" || newPalette(new(bytes.Buffer)).on {
		t.Error("what is no terminal is coloured")
	}
	if got := (palette{on: true}).bad("a"); got != "\x1b[31ma\x1b[0m" || (palette{on: true}).bad("") != "" {
		t.Errorf("%q", got)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if newPalette(null).on {
		t.Error("a file is coloured")
	}
}

// What a limit says is told in the words of its answer.
func TestExplainText_Verdicts(t *testing.T) {
	e := explainText{}
	enforced, shadow := view.ExplainedLimit{Limit: view.Limit{Mode: "enforce", Scope: "overall", Exposed: true}, Cost: 1}, view.ExplainedLimit{Limit: view.Limit{Mode: "shadow", Scope: "overall", Exposed: true}, Cost: 1}
	much := view.ExplainedLimit{Limit: view.Limit{Mode: "enforce", Scope: "per_instance", Redisson: "a:b", Wait: "500ms"}, Cost: 3, Override: true, Penalty: "banned"}
	for want, got := range map[string]string{
		"allowed, 2 of 5 left":         e.verdict(enforced, view.ExplainedWindow{Allowed: true, Remaining: 2, Most: 5}),
		"refused, passes in 1m30s":     e.verdict(enforced, view.ExplainedWindow{WaitMS: 90_000}),
		"would refuse, passes in 20ms": e.verdict(shadow, view.ExplainedWindow{WaitMS: 20}),
		"banned for 1h":                e.verdict(enforced, view.ExplainedWindow{WaitMS: 3_600_000, Banned: true}),
		"allowed, 0 of 0 left; costs 3, per_instance, override, hidden from clients, shared with Redisson, banned, waits up to 500ms": e.verdict(much, view.ExplainedWindow{Allowed: true}),
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
