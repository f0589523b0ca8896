package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

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
	return Diff{view.Entry{Generation: n}, []config.Change{}, "- a"}, f.err
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
		{"GET", "/api/v1/history/7", "", `{"generation":7,"hash":"","author":"","node":"","at":"0001-01-01T00:00:00Z","changes":[],"diff":"- a"}`},
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
		if w := adminPost(Options{}, "POST", target, "{}"); w.Code != 409 || !strings.Contains(w.Body.String(), "source: redis") {
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
