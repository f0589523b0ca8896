package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

// startAdmin is a client of an admin side with these options.
func startAdmin(t *testing.T, o Options) Client {
	t.Helper()
	o.Gatherer = prometheus.NewRegistry()
	s := httptest.NewServer(New(o))
	t.Cleanup(s.Close)
	return Client{Address: strings.TrimPrefix(s.URL, "http://"), Token: o.Token}
}

// What a client reads is what the server's functions return, whole.
func TestClient_ReadsWhatIsAnswered(t *testing.T) {
	c := startAdmin(t, Options{Token: "sixteen characters", Cluster: failingPusher{}, Plan: planOf})
	bundle := bundle.Bundle{Main: "a", Files: map[string]string{"a": "b"}}
	push := Push{Bundle: bundle, Author: "ann", DryRun: true}
	pushed, err := c.Push(t.Context(), push)
	want, _ := failingPusher{}.Push(t.Context(), push)
	if err != nil || !reflect.DeepEqual(pushed, want) {
		t.Errorf("push = %+v, %v; want %+v", pushed, err, want)
	}
	back, err := c.Rollback(t.Context(), Rollback{Generation: 3, Author: "ann"})
	want, _ = failingPusher{}.Rollback(t.Context(), Rollback{Generation: 3, Author: "ann"})
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("rollback = %+v, %v; want %+v", back, err, want)
	}
	if p, err := c.Plan(t.Context(), push); err != nil || p.Restart != "a" {
		t.Errorf("plan = %+v, %v", p, err)
	}
	if h, err := c.History(t.Context()); err != nil || len(h.History) != 1 || h.History[0].Author != "ann" {
		t.Errorf("history = %+v, %v", h, err)
	}
	if d, err := c.Diff(t.Context(), 7); err != nil || d.Generation != 7 || d.Diff != "- a" {
		t.Errorf("diff = %+v, %v", d, err)
	}
	if err := c.Healthz(t.Context()); err != nil {
		t.Error(err)
	}
}

// A refusal is a Problem with all the facts that the server gave it.
func TestClient_RefusalsAreProblems(t *testing.T) {
	problems := config.Problems{{Position: config.Position{File: "a", Line: 1, Column: 2}, What: "wrong"}}
	for _, row := range []struct {
		err  error
		want Problem
	}{
		{&Problem{Status: 409, Detail: "ann pushes", Author: "ann", Node: "n"}, Problem{Status: 409, Title: "Conflict", Detail: "ann pushes", Author: "ann", Node: "n"}},
		{&Problem{Status: 409, Detail: "no", Nodes: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}, Problem{Status: 409, Title: "Conflict", Detail: "no", Nodes: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}},
		{problems, Problem{Status: 422, Title: "Unprocessable Entity", Detail: "a:1:2: wrong", Problems: []string{"a:1:2: wrong"}}},
		{errors.New("redis is away"), Problem{Status: 503, Title: "Service Unavailable", Detail: "redis is away"}},
	} {
		_, err := startAdmin(t, Options{Cluster: failingPusher{row.err}}).Push(t.Context(), Push{})
		row.want.Type = "about:blank"
		var got *Problem
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, row.want) {
			t.Errorf("push that fails with %v: %#v; want %+v", row.err, err, row.want)
		}
	}
	c := startAdmin(t, Options{Token: "sixteen characters"})
	c.Token = "guess"
	var got *Problem
	if _, err := c.History(t.Context()); !errors.As(err, &got) || got.Status != 401 {
		t.Errorf("with another token: %v; want 401", err)
	}
}

// What is no weir, or nothing at all, is said in one sentence that tells what to do.
func TestClient_WhereNoWeirIs(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/plan" {
			w.Write([]byte("<html>"))
			return
		}
		if r.URL.Path == "/api/v1/nodes" { // as the listener for requests does
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"type":"about:blank","title":"Not Found","status":404}`))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(page.Close)
	c := Client{Address: page.URL + "/"}
	if _, err := c.History(t.Context()); err == nil || !strings.Contains(err.Error(), "404 Not Found; is this its admin listener?") {
		t.Errorf("history of a web page: %v", err)
	}
	if _, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "404 Not Found; is this its admin listener?") {
		t.Errorf("nodes of the listener for requests: %v", err)
	}
	if _, err := c.Plan(t.Context(), Push{}); err == nil || !strings.Contains(err.Error(), "not understood") {
		t.Errorf("plan of a web page: %v", err)
	}
	if err := c.Healthz(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("healthz of a web page: %v", err)
	}
	c = Client{Address: "127.0.0.1:1"}
	if _, err := c.History(t.Context()); err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("history of nobody: %v; want what to write", err)
	}
	c = Client{Address: "%"}
	if _, err := c.History(t.Context()); err == nil {
		t.Error("an address that is none: no error")
	}
	if c.Healthz(t.Context()) == nil {
		t.Error("an address that is none lives")
	}
}

func TestClient_BaseOfAnAddress(t *testing.T) {
	for addr, want := range map[string]string{
		":9901": "http://localhost:9901", "0.0.0.0:9901": "http://localhost:9901", "[::]:9901": "http://localhost:9901",
		"10.0.0.1:9901": "http://10.0.0.1:9901", "weir.example:9901": "http://weir.example:9901",
		"https://weir.example/": "https://weir.example", "https://weir.example/ops": "https://weir.example/ops",
	} {
		if got := (Client{Address: addr}).base(); got != want {
			t.Errorf("%s: %s; want %s", addr, got, want)
		}
	}
}
