package test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// metric is the value of the series with exactly that name and labels; one that
// is not there is 0.
func (w *weir) metric(series string) float64 {
	w.t.Helper()
	for text := range strings.Lines(w.metrics()) {
		at := strings.LastIndexByte(text, ' ')
		if at < 0 || text[:at] != series {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return value
	}
	return 0
}

func (w *weir) metrics() string {
	w.t.Helper()
	status, body := w.get(w.Admin + "/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("/metrics is answered %d %s", status, body)
	}
	return body
}

func TestAdmin_TellsHealthAndReadiness(t *testing.T) {
	w := start(t, smsYAML("1/1m", ""))
	if status, body := w.get(w.Admin + "/healthz"); status != http.StatusOK || strings.TrimSpace(body) != "ok" {
		t.Errorf("/healthz is answered %d %q, want 200 ok", status, body)
	}
	if got := w.checks(); got["config"] != "ok" || got["store"] != "ok" {
		t.Errorf("/readyz has the checks %v, want config and store to be ok", got)
	}
	if status, _ := w.get(w.URL + "/readyz"); status != http.StatusNotFound {
		t.Errorf("clients reach /readyz: %d, want 404", status)
	}
	if status, _ := w.get(w.Admin + "/debug/pprof/"); status != http.StatusNotFound && status != http.StatusUnauthorized {
		t.Errorf("profiles are served without a token: %d", status)
	}
}

// checks are what /readyz says of each thing it looks at.
func (w *weir) checks() map[string]string {
	w.t.Helper()
	_, body := w.get(w.Admin + "/readyz")
	var ready struct{ Checks map[string]string }
	if err := json.Unmarshal([]byte(body), &ready); err != nil {
		w.t.Fatalf("/readyz says %q: %v", body, err)
	}
	return ready.Checks
}

func TestAdmin_AsksForTheToken(t *testing.T) {
	config := smsYAML("1/1m", "") + `
listen: {http: "127.0.0.1:0"}
admin: {http: "127.0.0.1:0", token: "open-sesame"}
`
	dir := t.TempDir()
	write(t, dir+"/weir.yaml", config)
	w := startWith(t, dir)
	bearer := http.Header{"Authorization": {"Bearer open-sesame"}}
	wrong := http.Header{"Authorization": {"Bearer open-sesam"}}
	for _, page := range []struct{ method, path string }{
		{http.MethodPost, "/reload"},
		{http.MethodGet, "/debug/pprof/"},
		{http.MethodGet, "/debug/pprof/goroutine"},
	} {
		if status, _ := do(t, page.method, w.Admin+page.path, nil); status != http.StatusUnauthorized {
			t.Errorf("%s %s without a token is answered %d, want 401", page.method, page.path, status)
		}
		if status, _ := do(t, page.method, w.Admin+page.path, wrong); status != http.StatusUnauthorized {
			t.Errorf("%s %s with a wrong token is answered %d, want 401", page.method, page.path, status)
		}
		if status, body := do(t, page.method, w.Admin+page.path, bearer); status != http.StatusOK {
			t.Errorf("%s %s with the token is answered %d %s, want 200", page.method, page.path, status, body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, _ := w.get(w.Admin + path); status != http.StatusOK {
			t.Errorf("%s without a token is answered %d, want 200", path, status)
		}
	}
	if strings.Contains(w.log.String(), "open-sesame") || strings.Contains(w.metrics(), "open-sesame") {
		t.Error("the token is in the log or the metrics")
	}
}

// What an alert watches for its growth is there before it grows.
func TestMetrics_BeginAtNothing(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	for _, name := range []string{`weir_reloads_total{result="refused"} 0`, `weir_store_fallback_total{policy="local"} 0`, `weir_store_fallback_total{policy="deny"} 0`} {
		if !strings.Contains(w.metrics(), "\n"+name+"\n") {
			t.Errorf("/metrics does not begin with %s", name)
		}
	}
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+`upstreams: {demo: echo}
routes:
  - name: sms-send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [2/1h, 5/24h]}
      - {name: trial, key: "header:X-Phone", rate: 1/1h, mode: shadow}
`)
	w.statuses("p", 3)
	w.get(w.URL + "/nowhere")
	for series, want := range map[string]float64{
		`weir_requests_total{code="200",route="sms-send"}`:                             2,
		`weir_requests_total{code="429",route="sms-send"}`:                             1,
		`weir_requests_total{code="404",route="none"}`:                                 1,
		`weir_request_duration_seconds_count{route="sms-send"}`:                        3,
		`weir_decisions_total{limit="phone",result="allowed",route="sms-send"}`:        2,
		`weir_decisions_total{limit="phone",result="refused",route="sms-send"}`:        1,
		`weir_decisions_total{limit="trial",result="allowed",route="sms-send"}`:        1,
		`weir_decisions_total{limit="trial",result="shadow_refused",route="sms-send"}`: 1,
		`weir_config_generation`: 1,
	} {
		await.Until(t, series, func() bool { return w.metric(series) == want })
	}
	for _, name := range []string{"weir_build_info{", "weir_store_duration_seconds_count{operation="} {
		if !strings.Contains(w.metrics(), "\n"+name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
}
