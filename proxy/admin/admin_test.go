package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/config"
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
		o := Options{Ready: func(context.Context) Readiness {
			return Readiness{Ready: c.ready, Checks: map[string]string{"store": c.store}}
		}}
		w := adminRequest(o, "GET", "/readyz")
		var doc struct {
			Status string
			Checks map[string]string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != c.code || doc.Status != c.status || doc.Checks["store"] != c.store {
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
		if w := adminRequest(o, "GET", "/debug/pprof/cmdline", c.line); w.Code != c.want {
			t.Errorf("GET /debug/pprof/cmdline with %q = %d; want %d", c.line, w.Code, c.want)
		}
	}
	if w := adminRequest(o, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("healthz with a token set = %d; want 200", w.Code)
	}
}
