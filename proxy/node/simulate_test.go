package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
)

const replayed = `
keys: {phone: {from: "header:X-Phone", sensitive: true}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /send}
    upstream: demo
    limits: [{name: phone, key: phone, rate: 3/1h}]
`

// accessLog is a log in which one phone sends so often, once a second.
func accessLogOf(requests int) string {
	var b strings.Builder
	for i := range requests {
		fmt.Fprintf(&b, `{"msec":"%d","remote_addr":"192.0.2.1","request_method":"POST","request_uri":"/send","status":"200","http_x_phone":"+8613800138000"}`+"\n", 1_795_345_547+i)
	}
	return b.String()
}

func TestSimulate_ComparesWhatIsServedWithAnother(t *testing.T) {
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n"+replayed))
	s, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(accessLogOf(10)), Other: strings.Replace(replayed, "3/1h", "1/1h", 1)})
	check(t, err)
	if s.Requests != 10 || s.Result.Refused != 7 || s.Against == nil || s.Against.Refused != 9 || s.Node == "" || s.Generation != 1 {
		t.Errorf("got %+v; want 7 of 10 refused, and 9 by the other", s)
	}
	if d := s.Differences; len(d) != 2 || d[1].Limit != "phone" || d[1].A.Refused != 7 || d[1].B.Refused != 9 || d[1].B.Rates[0] != "1/1h" {
		t.Errorf("side by side it is %+v", d)
	}
	if top := s.Result.Routes[0].Limits[0].Top; len(top) != 1 || strings.Contains(top[0].Key, "13800138000") || top[0].Refused != 7 {
		t.Errorf("the keys refused most are %+v", top)
	}
	get(t, "http://"+n.Address("http")+"/send")
	if _, now := n.proxy.Serving(); now.Files[0] != n.source.path {
		t.Errorf("what is served is called %q now", now.Files[0])
	}
}

// What is told of the configuration that is served is another one to begin with.
func TestSimulate_TakesWhatIsTold(t *testing.T) {
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nprivacy: {hash_secret: '0123456789abcdef0123456789abcdef'}\n"+replayed))
	served, err := n.servedConfig(t.Context())
	check(t, err)
	s, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(accessLogOf(10)), Other: served.Effective})
	if err != nil || s.Against == nil || s.Against.Refused != s.Result.Refused || s.Result.Refused != 7 {
		t.Errorf("got %+v, %v; want the same of both", s, err)
	}
}

// A copy of it lacks overrides that are not shown, and the result says so.
func TestSimulate_SaysWhatACopyLacks(t *testing.T) {
	yaml := strings.Replace(replayed, "rate: 3/1h", `rate: 3/1h, overrides: {"13800138000": 9/1h, "13800138001": 5/1h}`, 1)
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n"+yaml))
	served, err := n.servedConfig(t.Context())
	check(t, err)
	const lacks = "of overrides and lists 2 values are not in the other configuration"
	for other, want := range map[string]bool{served.Effective: true, yaml: false} {
		s, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(accessLogOf(10)), Other: other})
		if got := strings.Contains(strings.Join(s.Notes, "\n"), lacks); err != nil || got != want {
			t.Errorf("%v, notes %q; want that a copy lacks two: %v", err, s.Notes, want)
		}
	}
}

// Another configuration may name the files of lists that the node serves, as a copy does, but not the file of the node or
// one that it includes: errors in a list quote it, and these may have secrets.
func TestSimulate_TakesTheListsThatAreServed(t *testing.T) {
	path := write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\ninclude: ['more/*.conf']\n"+strings.Replace(replayed, "rate: 3/1h", "rate: 3/1h, plan: {list: plans.txt}, plans: {pro: 9/1h}", 1))
	dir := filepath.Dir(path)
	if err := cmp.Or(os.WriteFile(filepath.Join(dir, "plans.txt"), []byte("13800138000=pro\n"), 0o600), os.Mkdir(filepath.Join(dir, "more"), 0o700),
		os.WriteFile(filepath.Join(dir, "more", "a.conf"), []byte("lists: {}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	n := mustStart(t, path)
	served, err := n.servedConfig(t.Context())
	check(t, err)
	if s, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(accessLogOf(10)), Other: served.Effective}); err != nil || s.Against == nil {
		t.Errorf("got %+v, %v; want a comparison", s, err)
	}
	for _, name := range []string{filepath.Base(path), path, "more/a.conf", filepath.Join(dir, "more", "a.conf")} {
		other := strings.Replace(served.Effective, "plans.txt", name, 1)
		if _, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(""), Other: other}); err == nil || !strings.Contains(err.Error(), "was not sent with this configuration") {
			t.Errorf("%s: got %v; want that it was not sent", name, err)
		}
	}
}

func TestSimulate_SaysWhatIsWrong(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	for _, c := range []struct {
		name   string
		q      admin.SimulateQuery
		status int
		says   string
	}{
		{"no file", admin.SimulateQuery{}, http.StatusConflict, "access_log: {file: access.log}"},
		{"broken gzip", admin.SimulateQuery{Log: strings.NewReader("\x1f\x8bnothing that gzip has written")}, http.StatusUnprocessableEntity, "gzip"},
		{"a field of nothing", admin.SimulateQuery{Log: strings.NewReader(""), Fields: []string{"phone"}}, http.StatusBadRequest, "WHAT=NAME"},
	} {
		_, err := n.simulate(t.Context(), c.q)
		var p *admin.Problem
		if !errors.As(err, &p) || p.Status != c.status || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%s: got %v; want status %d and %q", c.name, err, c.status, c.says)
		}
	}
	_, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader(""), Other: "routes: [{match: {path: /a}, upstrem: x}]"})
	var problems config.Problems
	if !errors.As(err, &problems) || !strings.HasPrefix(problems[0].String(), "other.yaml:1:") {
		t.Errorf("got %v; want problems with other.yaml", err)
	}
}

// A second one is refused until the first has ended, be it that its client has left.
func TestSimulate_OneAtATime(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	log, sent := io.Pipe()
	t.Cleanup(func() { sent.Close() })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := n.simulate(ctx, admin.SimulateQuery{Log: log})
		ended <- err
	}()
	if _, err := io.WriteString(sent, "\n"); err != nil { // which waits until it is read
		t.Fatal(err)
	}
	if _, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader("")}); !errors.Is(err, errReplayBusy) {
		t.Errorf("a second one is answered %v; want that one is being replayed", err)
	}
	leave()
	sent.Close() // where it waits
	if err := <-ended; err == nil {
		t.Error("it went on without its client")
	}
	if _, err := n.simulate(t.Context(), admin.SimulateQuery{Log: strings.NewReader("")}); err != nil {
		t.Errorf("the next one is answered %v", err)
	}
}

// What is sent over a connection that ends is not replayed to its end.
func TestSimulate_EndsWithItsConnection(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	log, sent := io.Pipe()
	r, err := http.NewRequest(http.MethodPost, "http://"+n.Address("admin")+"/api/v1/simulate", log)
	check(t, err)
	ctx, leave := context.WithCancel(t.Context())
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if answer, err := http.DefaultClient.Do(r.WithContext(ctx)); err == nil {
			answer.Body.Close()
		}
	}()
	t.Cleanup(func() { leave(); sent.Close() })
	if _, err := io.WriteString(sent, "--b\r\nContent-Disposition: form-data; name=\"log\"; filename=\"a\"\r\n\r\n"+accessLogOf(1)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it begins", func() bool { return len(n.replaying) == 1 })
	leave()
	sent.Close()
	<-gone
	await.Until(t, "it ends", func() bool { return len(n.replaying) == 0 })
}

func TestSimulate_ReplaysItsOwnLog(t *testing.T) {
	dir := t.TempDir()
	n := mustStart(t, writeConfig(t, fmt.Sprintf("access_log: {file: %q}\n", filepath.Join(dir, "access.log"))))
	for range 3 {
		get(t, "http://"+n.Address("http")+"/a")
	}
	await.Until(t, "its own log is replayed", func() bool {
		s, err := n.simulate(t.Context(), admin.SimulateQuery{})
		return err == nil && s.Requests == 3 && s.Result.Passed == 3
	})
}

func TestLastLines_BeginWithALine(t *testing.T) {
	for _, c := range []struct {
		text string
		most int64
		want string
	}{
		{"a\nbb\nc\n", 8, "a\nbb\nc\n"}, {"a\nbb\nc\n", 7, "a\nbb\nc\n"}, {"a\nbb\nc\n", 6, "bb\nc\n"}, {"a\nbb\nc\n", 5, "bb\nc\n"},
		{"a\nbb\nc\n", 4, "c\n"}, {"a\nbb\nc\n", 0, ""}, {"abc", 2, ""}, {strings.Repeat("a", 9000) + "\nb\n", 9002, "b\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		replaceFile(t, path, c.text)
		f, err := os.Open(path)
		check(t, err)
		defer f.Close()
		if got, _ := io.ReadAll(lastLines(f, c.most)); string(got) != c.want {
			t.Errorf("the last %d of %.20q: got %.20q, want %q", c.most, c.text, got, c.want)
		}
	}
}

func TestPace_LeavesTheProcessorToRequests(t *testing.T) {
	for cores, want := range map[int]float64{1: 0.25, 2: 0.25, 4: 0.5, 8: 1, 64: 1} {
		if got := cpuShare(cores); got != want {
			t.Errorf("of %d cores it takes %v of one; want %v", cores, got, want)
		}
	}
	for _, c := range []struct {
		worked, want time.Duration
		share        float64
	}{{2 * time.Millisecond, 6 * time.Millisecond, 0.25}, {2 * time.Millisecond, 2 * time.Millisecond, 0.5}, {2 * time.Millisecond, 0, 1}, {time.Hour, maxPause, 0.25}} {
		if got := pauseFor(c.worked, c.share); got != c.want {
			t.Errorf("after %v at %v it rests %v; want %v", c.worked, c.share, got, c.want)
		}
	}
}

// slowReader takes its time to say something.
type slowReader struct{ time.Duration }

func (s slowReader) Read(b []byte) (int, error) {
	time.Sleep(s.Duration)
	return len(b), nil
}

// However often it reads between, it rests as long as it should for what it has worked,
// and not for what it has waited.
func TestPace_CountsWorkAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const read, work, rounds = 10 * time.Millisecond, time.Millisecond, 100
		p := newThrottle(t.Context(), slowReader{read})
		p.share = 0.25
		began := time.Now()
		for range rounds {
			check(t, p.wait())
			if _, err := p.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(work)
		}
		p.wait()
		if got, want := time.Since(began), rounds*(read+4*work); got != want {
			t.Errorf("it took %v; want %v, three quarters of the time beside reading at rest", got, want)
		}
	})
}

func TestPace_EndsWhenItTakesTooMuch(t *testing.T) {
	p := newThrottle(t.Context(), strings.NewReader(""))
	p.workStart = time.Now().Add(-time.Second)
	if err := p.wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	p.workStart, p.maxHeap = time.Now().Add(-time.Second), 0
	if err := p.wait(); !errors.Is(err, errReplayFull) {
		t.Errorf("it goes on with %v; want that it takes too much memory", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errReplaySlow)
	p = newThrottle(ctx, strings.NewReader("a"))
	p.workStart = time.Now().Add(-time.Second)
	if err := p.wait(); !errors.Is(err, errReplaySlow) {
		t.Errorf("after its time it goes on with %v", err)
	}
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, errReplaySlow) {
		t.Errorf("after its time it reads on: %v", err)
	}
}

// Whoever may only read learns no variable of the environment, such as the token of another operator, from the names in a
// configuration that he asks about. Those that are served stay where they are.
func TestUnpack_ShowsReadersNoVariables(t *testing.T) {
	t.Setenv("WEIR_TEST_WRITE", "token-of-ops-who-write")
	t.Setenv("WEIR_TEST_NAME", "shown")
	const machine, route = "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0', tokens: [{name: ci, token: token-of-ci-who-reads}, {name: ops, token: \"${WEIR_TEST_WRITE}\", role: write}]}\n",
		"routes: [{name: a, match: {path: \"/${WEIR_TEST_NAME}\"}, respond: {body: ok}}, {name: THAT, match: {path: /send}, respond: {body: ok}}]\n"
	n := mustStart(t, write(t, machine+strings.Replace(route, "THAT", "b", 1)))
	ask := func(token, name string) (simulated, planned string) {
		other := strings.Replace(route, "THAT", name, 1)
		ctx := admin.WithOperator(t.Context(), admin.Operator{Name: "ci", Role: admin.Read})
		if token == "token-of-ops-who-write" {
			ctx = admin.WithOperator(t.Context(), admin.Operator{Name: "ops", Role: admin.Write})
		}
		s, err := n.simulate(ctx, admin.SimulateQuery{Log: strings.NewReader(accessLogOf(1)), Other: other})
		p, failed := admin.Post[admin.Plan](t.Context(), admin.Client{Address: n.Address("admin"), Token: token}, "/plan", admin.PushFile(machine+other, ""))
		return fmt.Sprint(s.Against, err), fmt.Sprint(p, failed)
	}
	for _, c := range []struct{ token, name, want string }{
		{"token-of-ci-who-reads", "c", "c"}, {"token-of-ci-who-reads", `"${WEIR_TEST_WRITE}"`, "the environment variable WEIR_TEST_WRITE in routes.name;"},
		{"token-of-ci-who-reads", `"${WEIR_TEST_WRITE}", unknown: a problem`, "the environment variable WEIR_TEST_WRITE in routes.name;"},
		{"token-of-ci-who-reads", `"${WEIR_TEST_NAME}"`, "the environment variable WEIR_TEST_NAME in routes.name;"}, {"token-of-ops-who-write", `"${WEIR_TEST_NAME}"`, "shown"},
	} {
		simulated, planned := ask(c.token, c.name)
		for _, got := range []string{simulated, planned} {
			if !strings.Contains(got, c.want) || strings.Contains(got, "token-of-ops-who-write") {
				t.Errorf("%s asks about the name %s: %s; want %q", c.token, c.name, got, c.want)
			}
		}
	}
}

// What is told of the configuration has variables by name, whoever asks: keys of upstreams stand in the environment. What is
// shown is a configuration that may be asked about.
func TestConfig_ShowsNoVariables(t *testing.T) {
	all := []string{"KEY", "FIELD", "BODY", "ANSWER", "PATH", "HOST", "BOT", "TO", "ARG", "TARGET"}
	values := []string{"key-of-ours", "field-of-ours", "body-of-ours", "answer-of-ours", "path-of-ours", "host-of-ours", "bot-of-ours", "to-of-ours", "arg-of-ours", "http://target-of-ours"}
	for i, name := range all {
		t.Setenv("WEIR_TEST_"+name, values[i])
	}
	path := write(t, strings.ReplaceAll(`listen: {http: '127.0.0.1:0'}
admin: {http: '127.0.0.1:0', tokens: [{name: ci, token: token-of-ci-who-reads}]}
upstreams: {short: "${TARGET}"}
routes:
- {name: a, match: {path: /a, headers: {x-app: "${FIELD}"}, query: {k: "${ARG}"}}, upstream: echo}
- name: b
  match: {path: "/b/${PATH}", host: "${HOST}.example"}
  upstream: echo
  rewrite: {add_prefix: "/bot${BOT}", headers: {set: {authorization: "Bearer ${KEY}", X-Price: "5$$", host: "${HOST}.example"}}}
- {name: c, match: {path: /c}, respond: {body: "${BODY}", headers: {x-answer: "${ANSWER}"}}}
- {name: d, match: {path: /d}, redirect: {to: "https://${TO}/{path}"}}
- {name: e, match: {path: /e}, upstream: short}
`, "${", "${WEIR_TEST_"))
	n := mustStart(t, path)
	client := admin.Client{Address: n.Address("admin"), Token: "token-of-ci-who-reads"}
	shown, err := admin.Get[view.Config](t.Context(), client, "/config")
	routes, failed := admin.Get[view.Routes](t.Context(), client, "/routes")
	told := fmt.Sprintf("%+v %v %+v %v", shown, err, routes, failed)
	for _, url := range []string{"/a", "http://host-of-ours.example/b/path-of-ours", "/c", "/d"} {
		e, err := admin.Post[view.Explanation](t.Context(), client, "/explain", view.ExplainRequest{Method: "GET", URL: url})
		text, _ := json.Marshal(e)
		told += fmt.Sprintf("\n%s %v", strings.NewReplacer("/b/path-of-ours", "", "host-of-ours.example", "").Replace(string(text)), err) // which the operator sent
	}
	for i, name := range all {
		if !strings.Contains(told, "${WEIR_TEST_"+name+"}") || strings.Contains(told, values[i]) {
			t.Errorf("of the variable %s it tells\n%s", name, told)
		}
	}
	ctx := admin.WithOperator(t.Context(), admin.Operator{Name: "ci", Role: admin.Read})
	_, other, _ := strings.Cut(shown.Effective, "\nupstreams:")
	if _, err := n.otherConfig(ctx, "upstreams:"+other); err != nil {
		t.Errorf("what is shown, asked about: %v\n%s", err, other)
	}
}

// Whoever may only read does not choose what this machine fetches before it answers.
func TestUnpack_FetchesNothingForReaders(t *testing.T) {
	var other atomic.Int32
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			other.Add(1)
		}
		fmt.Fprint(w, `{"keys": []}`)
	}))
	t.Cleanup(keys.Close)
	const machine = "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0', tokens: [{name: ci, token: token-of-ci-who-reads}, {name: ops, token: token-of-ops-who-write, role: write}]}\n"
	const routes = "routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{name: user, key: jwt:sub, rate: 9/1m}]}]\n"
	served := machine + "jwt: {jwks: " + keys.URL + "/served}\n" + routes
	n := mustStart(t, write(t, served))
	for _, c := range []struct {
		token, path, want string
		fetches           bool
	}{
		{"token-of-ci-who-reads", "/served", "<nil>", false},
		{"token-of-ci-who-reads", "/other", "no jwks at another URL", false},
		{"token-of-ops-who-write", "/other", "<nil>", true},
	} {
		_, err := admin.Post[admin.Plan](t.Context(), admin.Client{Address: n.Address("admin"), Token: c.token}, "/plan", admin.PushFile(strings.Replace(served, "/served", c.path, 1), ""))
		if got := fmt.Sprint(err); !strings.Contains(got, c.want) || (other.Load() > 0) != c.fetches {
			t.Errorf("%s plans with %s: %s, and %d requests for /other; want %q, and some: %v", c.token, c.path, got, other.Load(), c.want, c.fetches)
		}
	}
}

// The audit trail, which all may read, has the errors of reloads.
func TestReload_ErrorsTellNoVariables(t *testing.T) {
	t.Setenv("WEIR_TEST_KEY", "key of ours")
	const good = "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0', tokens: [{name: ci, token: token-of-ci-who-reads}, {name: ops, token: token-of-ops-who-write, role: write}]}\nroutes: [{name: a, match: {path: /a}, upstream: echo}]\n"
	path := write(t, good)
	n := mustStart(t, path)
	replaceFile(t, path, strings.Replace(good, "upstream: echo", `upstream: "${WEIR_TEST_KEY}"`, 1))
	client := admin.Client{Address: n.Address("admin"), Token: "token-of-ops-who-write"}
	_, refused := admin.Post[admin.Reloaded](t.Context(), client, "/reload", nil)
	client.Token = "token-of-ci-who-reads"
	trail, err := admin.Get[view.Audit](t.Context(), client, "/audit")
	if told := fmt.Sprintf("%v %+v %v", refused, trail, err); strings.Contains(told, "key of ours") || !strings.Contains(told, "${WEIR_TEST_KEY}") {
		t.Error(told)
	}
}
