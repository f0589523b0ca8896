package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/test/logtest"
)

// seriesOf returns what a scrape sees of v, by the value of its label.
func seriesOf(t *testing.T, v *metrics.Histograms) map[string]*dto.Histogram {
	t.Helper()
	to := make(chan prometheus.Metric)
	go func() {
		v.Collect(to)
		close(to)
	}()
	all := map[string]*dto.Histogram{}
	for one := range to {
		var m dto.Metric
		if err := one.Write(&m); err != nil {
			t.Error(err)
		}
		all[m.GetLabel()[0].GetValue()] = m.GetHistogram()
	}
	return all
}

// scrape is what /metrics shows to who accepts kind.
func (p *testProxy) scrape(kind string) string {
	p.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", kind)
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.PanicOnError}).ServeHTTP(rec, r)
	return rec.Body.String()
}

// Of each bucket there is a request that was in it, by its id.
func TestMetrics_ExemplarsNameARequest(t *testing.T) {
	w := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	id := w.sends(200, "GET", "/a", "X-User: alice").Header().Get("X-Request-Id")
	text := w.scrape("application/openmetrics-text; version=1.0.0")
	if !regexp.MustCompile(`weir_request_duration_seconds_bucket\{route="a",le="[^"]+"\} 1 # \{request_id="` + id + `"\}`).MatchString(text) {
		t.Errorf("no exemplar of request %s in\n%s", id, text)
	}
	for range 50 {
		w.send("GET", "/a", "X-User: alice")
	}
	found := regexp.MustCompile(`weir_request_duration_seconds_bucket.*request_id="`+id+`"`).FindAllString(w.scrape("application/openmetrics-text; version=1.0.0"), -1)
	if len(found) != 1 {
		t.Errorf("the exemplar was replaced at once by a later request: %v", found)
	}
	if plain := w.scrape("text/plain"); strings.Contains(plain, "request_id") || !strings.Contains(plain, `weir_own_duration_seconds_bucket{route="a",le="5e-05"}`) {
		t.Errorf("as plain text:\n%s", plain)
	}
}

// A label that is too long for OpenMetrics is left out, and never a fault of the scrape.
func TestMetrics_ExemplarOfALongID(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.0/24]}\n"+limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice", "X-Request-Id: "+strings.Repeat("a", 128))
	if text := w.scrape("application/openmetrics-text; version=1.0.0"); strings.Contains(text, "aaaa") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%s", text)
	}
}

// Own, upstream and waiting are the parts of the whole.
func TestMetrics_WhoTookHowLong(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), stripe.New())
	x := &exchange{began: time.Now(), duration: 10 * time.Second, outcome: forwardOutcome{duration: 6 * time.Second}}
	x.route, x.WaitTime = &route{Route: limit.Route{Route: &config.Route{Name: "a"}}, metrics: &routeMetrics{}}, 3*time.Second
	m.countResponse(x)
	m.countResponse(&exchange{began: time.Now(), duration: time.Second, response: clientResponse{status: 404}})
	for _, c := range []struct {
		v     *metrics.Histograms
		route string
		want  float64
	}{{m.durations[0], "a", 10}, {m.durations[1], "a", 1}, {m.durations[2], "a", 6}, {m.durations[3], "a", 3}, {m.durations[0], "none", 1}, {m.durations[1], "none", 1}} {
		if got := seriesOf(t, c.v)[c.route]; got.GetSampleSum() != c.want || got.GetSampleCount() != 1 {
			t.Errorf("%v of %s: %v in %d, want %v in one", c.v, c.route, got.GetSampleSum(), got.GetSampleCount(), c.want)
		}
	}
	if len(seriesOf(t, m.durations[2]))+len(seriesOf(t, m.durations[3])) != 2 {
		t.Error("what was never forwarded, or never waited, is in the figures")
	}
}

// The memory that counts take is in the figures: those of the store if it counts here,
// else those of what stands in for it.
func TestMetrics_KeysInMemory(t *testing.T) {
	w := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(200, "GET", "/a", "X-User: bob")
	keys, bytes := w.store.Keys()
	if text := w.scrape("text/plain"); keys != 2 || !strings.Contains(text, "weir_memory_keys 2\n") || !strings.Contains(text, fmt.Sprintf("weir_memory_key_bytes %d\n", bytes)) {
		t.Errorf("%d keys in %d bytes:\n%s", keys, bytes, text)
	}
	away := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"), func(o *Options) { o.Store = struct{ limiter.AdminStore }{o.Store} })
	away.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
	away.sends(200, "GET", "/a", "X-User: alice")
	if text := away.scrape("text/plain"); !strings.Contains(text, "weir_memory_keys 1\n") {
		t.Errorf("without the store:\n%s", text)
	}
}

// A request counts once, by one outcome, however many limits it has; the outcomes of a route add up to
// its requests.
func TestMetrics_ARequestHasOneOutcome(t *testing.T) {
	w := newProxy(t, limitYAML("{name: one, key: 'header:X-User', rate: 2/1h}, {name: two, key: 'header:X-User', rate: 2/1h}, {name: trial, key: 'header:X-User', rate: 1/1h, mode: shadow}"))
	for range 5 {
		w.send("GET", "/a", "X-User: alice")
	}
	w.send("GET", "/a")
	w.send("GET", "/elsewhere")
	want := map[Series]int64{{Route: "a", Result: "allowed"}: 1, {Route: "a", Result: "shadow_refused"}: 1, {Route: "a", Result: "refused"}: 3, {Route: "a", Result: "rejected"}: 1, {Route: "none", Result: "rejected"}: 1}
	got := w.Counts()
	maps.DeleteFunc(got, func(s Series, _ int64) bool { return s.Limit != "" })
	if !maps.Equal(got, want) {
		t.Errorf("outcomes are %v; want %v", got, want)
	}
	if text := w.scrape("text/plain"); !strings.Contains(text, `weir_request_outcomes_total{outcome="refused",route="a"} 3`+"\n") {
		t.Errorf("the metric of outcomes is not there:\n%s", text)
	}
}

// A request that only on_store_failure: allow let through was not decided.
func TestMetrics_WithoutTheStoreNothingIsDecided(t *testing.T) {
	for policy, want := range map[string]string{"allow": "unavailable", "deny": "unavailable", "local": "allowed"} {
		w := newProxy(t, limitYAML("{name: one, key: 'header:X-User', rate: 2/1h, on_store_failure: "+policy+"}"))
		w.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
		w.send("GET", "/a", "X-User: alice")
		if got := w.Counts(); got[Series{Route: "a", Result: want}] != 1 || requestsOf(got, "a") != 1 {
			t.Errorf("%s: outcomes are %v; want one %s", policy, got, want)
		}
	}
}

// Each response that breaks a rule is counted, and one a minute of each target is logged.
func TestBadResponses_AreCountedAndLoggedOnceAMinute(t *testing.T) {
	var log logtest.Log
	b := newBadResponses(zerolog.New(&log), prometheus.NewRegistry())
	now := time.Unix(1_000_000, 0)
	fail := func(target string, kind upstream.ResultKind, err error) {
		b.record("api", &upstream.Result{Target: target, Kind: kind, Err: fmt.Errorf("forward request: %w", err)}, now)
	}
	for range 3 {
		fail("a", upstream.BadResponse, http1.ErrStatusLine)
	}
	fail("a", upstream.ResponseTruncated, http1.ErrChunk)
	fail("b", upstream.BadResponse, http1.ErrStatusLine)
	fail("c", upstream.ResponseTruncated, http1.ErrTruncated) // a connection that ended breaks no rule
	fail("c", upstream.ConnectFailed, http1.ErrStatusLine)
	now = now.Add(faultInterval)
	fail("a", upstream.BadResponse, http1.ErrFoldedLine)
	for reason, want := range map[string]float64{"status_line_not_valid": 3, "chunk_not_valid": 1, "folded_field_line": 1} {
		if got := testutil.ToFloat64(b.total.WithLabelValues("api", "a", reason)); got != want {
			t.Errorf("%s: %v; want %v", reason, got, want)
		}
	}
	var lines []string
	for _, line := range log.Lines() {
		lines = append(lines, fmt.Sprint(line["target"], ": ", line["reason"]))
	}
	if got, want := fmt.Sprint(lines), "[a: status line not valid b: status line not valid a: folded field line]"; got != want {
		t.Errorf("logged %s; want %s", got, want)
	}
}
