package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"fmt"
	"github.com/weir-proxy/weir/proxy/view"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// adminRequest sends one request to an admin side with these options.
func adminRequest(o Options, method, target string, lines ...string) *httptest.ResponseRecorder {
	if o.Gatherer == nil {
		o.Gatherer = prometheus.NewRegistry()
	}
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:9901"
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, r)
	return w
}

func reloads(report Reloaded, err error) Options {
	return Options{Reload: func(context.Context) (Reloaded, error) { return report, err }}
}

func TestHealthz(t *testing.T) {
	if w := adminRequest(Options{}, "GET", "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("healthz = %d %q", w.Code, w.Body)
	}
}

func TestReadyz(t *testing.T) {
	for _, c := range []struct {
		ready  bool
		store  string
		code   int
		status string
	}{
		{true, "ok", 200, "ok"},
		{true, "no answer", 200, "degraded"},
		{false, "ok", 503, "not ready"},
	} {
		o := Options{Ready: func(context.Context) Health {
			return Health{Ready: c.ready, Checks: map[string]string{"store": c.store}, CallsBySlot: []string{"r1:6379"}}
		}}
		w := adminRequest(o, "GET", "/readyz")
		var doc struct {
			Status      string
			Checks      map[string]string
			CallsBySlot []string `json:"calls_by_slot"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != c.code || doc.Status != c.status || doc.Checks["store"] != c.store || len(doc.CallsBySlot) != 1 {
			t.Errorf("readyz of %+v = %d %s", c, w.Code, w.Body)
		}
	}
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_test_total"})
	r.MustRegister(c)
	c.Inc()
	if w := adminRequest(Options{Gatherer: r}, "GET", "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "weir_test_total 1") {
		t.Errorf("metrics = %d %s", w.Code, w.Body)
	}
}

func TestReload_SaysWhatIsServed(t *testing.T) {
	w := adminRequest(reloads(Reloaded{Generation: 3, Hash: "abc", Changed: true}, nil), "POST", "/reload")
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"generation":3,"hash":"abc","changed":true}` {
		t.Errorf("reload = %d %s", w.Code, w.Body)
	}
}

func TestReload_SaysEveryProblem(t *testing.T) {
	problems := config.Problems{
		{Position: config.Position{File: "weir.yaml", Line: 3, Column: 5}, What: "wrong", Instead: "write right"},
		{Position: config.Position{File: "weir.yaml", Line: 9, Column: 1}, What: "worse"},
	}
	w := adminRequest(reloads(Reloaded{}, problems), "POST", "/reload")
	var doc struct {
		Status   int
		Detail   string
		Problems []string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != 422 || doc.Status != 422 || len(doc.Problems) != 2 {
		t.Fatalf("reload = %d %s", w.Code, w.Body)
	}
	if want := "weir.yaml:3:5: wrong; write right"; doc.Detail != want || doc.Problems[0] != want {
		t.Errorf("detail %q, first problem %q; want %q", doc.Detail, doc.Problems[0], want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type = %q", got)
	}
}

func TestReload_OtherErrors(t *testing.T) {
	if w := adminRequest(reloads(Reloaded{}, errors.New("another node is reloading")), "POST", "/reload"); w.Code != 409 || !strings.Contains(w.Body.String(), "another node") {
		t.Errorf("reload = %d %s; want 409 and why", w.Code, w.Body)
	}
}

func TestReload_NotByGetNorByAWebPage(t *testing.T) {
	called := false
	o := Options{Reload: func(context.Context) (Reloaded, error) { called = true; return Reloaded{}, nil }}
	if w := adminRequest(o, "GET", "/reload"); w.Code != 405 {
		t.Errorf("GET /reload = %d; want 405", w.Code)
	}
	if w := adminRequest(o, "POST", "/reload", "Sec-Fetch-Site: cross-site"); w.Code != 403 || called {
		t.Errorf("POST /reload from a web page = %d; want 403", w.Code)
	}
}

func TestToken(t *testing.T) {
	o := reloads(Reloaded{}, nil)
	if w := adminRequest(o, "GET", "/debug/pprof/cmdline"); w.Code != 404 {
		t.Errorf("pprof without a token to ask for = %d; want 404", w.Code)
	}
	o.Token = "secret"
	for _, c := range []struct {
		line string
		want int
	}{
		{"X: y", 401}, {"Authorization: Bearer wrong", 401}, {"Authorization: Basic secret", 401},
		{"Authorization: secret", 401}, {"Authorization: Bearer ", 401}, {"Authorization: Bearer secret", 200},
	} {
		if w := adminRequest(o, "POST", "/reload", c.line); w.Code != c.want || (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("POST /reload with %q = %d; want %d", c.line, w.Code, c.want)
		}
		for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/vars"} {
			if w := adminRequest(o, "GET", path, c.line); w.Code != c.want {
				t.Errorf("GET %s with %q = %d; want %d", path, c.line, w.Code, c.want)
			}
		}
	}
	if w := adminRequest(o, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("healthz with a token set = %d; want 200", w.Code)
	}
}

func returns[T any](v T, err error) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, err }
}

func TestCluster_SendsWhatItIsGiven(t *testing.T) {
	o := Options{Leader: returns(view.Leadership{Self: "a", Node: "b", Tasks: []view.TaskRun{}}, nil)}
	if w := adminRequest(o, "GET", "/api/v1/leader"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"self":"a","node":"b","tasks":[]}` {
		t.Errorf("leader = %d %s", w.Code, w.Body)
	}
	if w := adminRequest(o, "POST", "/api/v1/leader"); w.Code != 405 {
		t.Errorf("POST leader = %d; want 405", w.Code)
	}
	o = Options{Leader: returns(view.Leadership{}, errors.New("redis is away"))}
	if w := adminRequest(o, "GET", "/api/v1/leader"); w.Code != 503 || !strings.Contains(w.Body.String(), "redis is away") {
		t.Errorf("leader that cannot be told = %d %s; want 503 and why", w.Code, w.Body)
	}
}

func TestCluster_WantsTheToken(t *testing.T) {
	o := Options{Token: "secret", Leader: returns(view.Leadership{}, nil), Nodes: returns(Nodes{}, nil),
		Statistics: func(context.Context, int) (view.Statistics, error) { return view.Statistics{}, nil }}
	for _, path := range []string{"leader", "nodes", "statistics"} {
		if w := adminRequest(o, "GET", "/api/v1/"+path); w.Code != 401 {
			t.Errorf("%s without the token = %d; want 401", path, w.Code)
		}
		if w := adminRequest(o, "GET", "/api/v1/"+path, "Authorization: Bearer secret"); w.Code != 200 {
			t.Errorf("%s with the token = %d; want 200", path, w.Code)
		}
	}
}

func TestCluster_Minutes(t *testing.T) {
	var got int
	o := Options{Statistics: func(_ context.Context, n int) (view.Statistics, error) { got = n; return view.Statistics{}, nil }}
	for _, c := range []struct {
		query      string
		code, want int
	}{
		{"", 200, 60}, {"?minutes=1", 200, 1}, {"?minutes=1440", 200, 1440},
		{"?minutes=0", 400, 0}, {"?minutes=1441", 400, 0}, {"?minutes=-1", 400, 0}, {"?minutes=1h", 400, 0},
	} {
		got = 0
		w := adminRequest(o, "GET", "/api/v1/statistics"+c.query)
		if w.Code != c.code || got != c.want {
			t.Errorf("statistics%s = %d for %d minutes; want %d for %d", c.query, w.Code, got, c.code, c.want)
		}
		if c.code == 400 && !strings.Contains(w.Body.String(), "write 1 to 1440") {
			t.Errorf("statistics%s does not say what to write: %s", c.query, w.Body)
		}
	}
}

// A failingPusher answers everything with one error, or with what it was asked.
type failingPusher struct{ err error }

func (f failingPusher) Push(_ context.Context, p Push) (Pushed, error) {
	return Pushed{Hash: p.Bundle.Hash(), DryRun: p.DryRun, Warnings: []string{p.Author}}, f.err
}

func (f failingPusher) Rollback(_ context.Context, r Rollback) (Pushed, error) {
	return Pushed{Generation: r.Generation, Warnings: []string{r.Author}}, f.err
}

func (f failingPusher) History(context.Context) (History, error) {
	return History{[]view.Entry{{Generation: 2, Author: "ann"}}}, f.err
}

func (f failingPusher) Diff(_ context.Context, n int64) (Diff, error) {
	return Diff{view.Entry{Generation: n}, []config.Change{}, "- a", true}, f.err
}

// planOf is what a plan is that was made of main.
func planOf(_ context.Context, b bundle.Bundle) (Plan, error) { return Plan{Restart: b.Main}, nil }

// adminPost sends a body to an admin side with these options.
func adminPost(o Options, method, target, body string) *httptest.ResponseRecorder {
	o.Gatherer = prometheus.NewRegistry()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost:9901"
	New(o).ServeHTTP(w, r)
	return w
}

func TestPush_PassesOnWhatIsAsked(t *testing.T) {
	o := Options{Cluster: failingPusher{}, Plan: planOf}
	for _, c := range []struct{ method, target, body, want string }{
		{"POST", "/api/v1/push", `{"bundle":{"main":"a","files":{"a":"b"}},"author":"ann","dry_run":true}`, `{"generation":0,"hash":"` + (bundle.Bundle{Main: "a", Files: map[string]string{"a": "b"}}).Hash() + `","nodes":null,"changed":false,"dry_run":true,"changes":null,"warnings":["ann"]}`},
		{"POST", "/api/v1/rollback", `{"generation":7,"author":"ann"}`, `{"generation":7,"hash":"","nodes":null,"changed":false,"changes":null,"warnings":["ann"]}`},
		{"GET", "/api/v1/history", "", `{"history":[{"generation":2,"hash":"","author":"ann","node":"","at":"0001-01-01T00:00:00Z"}]}`},
		{"GET", "/api/v1/history/7", "", `{"generation":7,"hash":"","author":"","node":"","at":"0001-01-01T00:00:00Z","changes":[],"diff":"- a","oldest":true}`},
		{"POST", "/api/v1/plan", `{"bundle":{"main":"a","files":{}}}`, `{"generation":0,"changes":null,"restart":"a","refused":null,"looked":0,"whole":false}`},
	} {
		if w := adminPost(o, c.method, c.target, c.body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != c.want {
			t.Errorf("%s %s = %d %s; want %s", c.method, c.target, w.Code, w.Body, c.want)
		}
	}
}

func TestPush_ErrorsHaveTheirStatus(t *testing.T) {
	problems := config.Problems{{Position: config.Position{File: "a", Line: 1, Column: 2}, What: "wrong"}}
	for _, c := range []struct {
		err   error
		code  int
		words string
	}{
		{&Problem{Status: 409, Detail: "ann pushes", Author: "ann"}, 409, `"author":"ann"`},
		{fmt.Errorf("look: %w", problems), 422, `"problems":["a:1:2: wrong"]`},
		{fmt.Errorf("%w: too large", bundle.ErrInvalid), 422, "too large"},
		{errors.New("no answer"), 503, "no answer"},
	} {
		w := adminPost(Options{Cluster: failingPusher{c.err}}, "POST", "/api/v1/push", "{}")
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.words) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%v: %d %s; want %d and %s", c.err, w.Code, w.Body, c.code, c.words)
		}
	}
}

func TestPush_BadRequests(t *testing.T) {
	o := Options{Cluster: failingPusher{}}
	long := string(bytes.Repeat([]byte(" "), maxBundleBody+1))
	for _, c := range []struct {
		method, target, body string
		code                 int
	}{
		{"POST", "/api/v1/push", "nonsense", http.StatusBadRequest},
		{"POST", "/api/v1/push", `{"bundel":{}}`, http.StatusBadRequest},
		{"POST", "/api/v1/push", long, http.StatusRequestEntityTooLarge},
		{"GET", "/api/v1/push", "", http.StatusMethodNotAllowed},
		{"GET", "/api/v1/history/last", "", http.StatusNotFound},
	} {
		if w := adminPost(o, c.method, c.target, c.body); w.Code != c.code {
			t.Errorf("%s %s of %.20q = %d; want %d", c.method, c.target, c.body, w.Code, c.code)
		}
	}
}

func TestPush_WhereTheFileIsServed(t *testing.T) {
	for _, target := range []string{"/api/v1/push", "/api/v1/rollback"} {
		if w := adminPost(Options{}, "POST", target, "{}"); w.Code != 409 || !strings.Contains(w.Body.String(), "to push, write reload: {source: redis} beside store: redis, and restart it") {
			t.Errorf("%s = %d %s; want what to write", target, w.Code, w.Body)
		}
	}
}

func TestPush_WantsTheToken(t *testing.T) {
	o := Options{Token: "secret", Cluster: failingPusher{}}
	for _, c := range []struct{ method, target string }{
		{"POST", "/api/v1/push"}, {"POST", "/api/v1/rollback"}, {"POST", "/api/v1/plan"}, {"GET", "/api/v1/history"}, {"GET", "/api/v1/history/1"},
	} {
		if w := adminPost(o, c.method, c.target, "{}"); w.Code != 401 {
			t.Errorf("%s %s without the token = %d; want 401", c.method, c.target, w.Code)
		}
	}
}

// While one plan is made, others are turned away before they are read.
func TestPlan_OneAtATime(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	h := New(Options{Gatherer: prometheus.NewRegistry(), Plan: func(_ context.Context, b bundle.Bundle) (Plan, error) {
		close(begun)
		<-goOn
		return planOf(context.Background(), b)
	}})
	ask := func() *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/api/v1/plan", strings.NewReader(`{"bundle":{"main":"a","files":{}}}`))
		r.Host = "localhost"
		h.ServeHTTP(w, r)
		return w
	}
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- ask() }()
	<-begun
	if w := ask(); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "try again later") {
		t.Errorf("a second plan = %d %s; want that it has to wait", w.Code, w.Body)
	}
	close(goOn)
	if w := <-first; w.Code != 200 {
		t.Errorf("the first plan = %d %s", w.Code, w.Body)
	}
}
