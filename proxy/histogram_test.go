package proxy

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// metricOf is what a scrape sees of h.
func metricOf(t *testing.T, v *histogramVec, h *histogram) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := (&histogramMetric{v.desc, h}).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}

// What client_golang makes of the same observations is what we make of them.
func TestHistogram_AsClientGolangCounts(t *testing.T) {
	bounds := classicBounds()
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "a", Buckets: bounds, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: math.Exp2(nativeFrom),
	})
	v := newHistogramVec(newHistogramCells(), "a_seconds", "help", "route")
	ours := v.of("a")
	var seen []time.Duration
	for _, b := range bounds { // exactly the bound, and a nanosecond beside
		d := time.Duration(b * 1e9)
		seen = append(seen, d-1, d, d+1)
	}
	for d := time.Duration(0); d < time.Minute; d = d*5/4 + 100 {
		seen = append(seen, d)
	}
	for _, d := range seen {
		theirs.Observe(d.Seconds())
		ours.observe(d)
	}
	var m dto.Metric
	if err := theirs.Write(&m); err != nil {
		t.Fatal(err)
	}
	want, got := m.GetHistogram(), metricOf(t, v, ours)
	if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6 ||
		got.GetSchema() != want.GetSchema() || got.GetZeroCount() != want.GetZeroCount() || got.GetZeroThreshold() != want.GetZeroThreshold() {
		t.Errorf("%v\nwant %v", got, want)
	}
	for i, b := range want.GetBucket() {
		if g := got.GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %v; want %v", g, b)
		}
	}
	w, g := nativeCounts(want), nativeCounts(got)
	for index, n := range w {
		if g[index] != n {
			t.Errorf("native bucket %d has %d; want %d", index, g[index], n)
		}
	}
	if len(g) != len(w) {
		t.Errorf("%d native buckets; want %d", len(g), len(w))
	}
}

// nativeCounts are the counts of native buckets by their index.
func nativeCounts(h *dto.Histogram) map[int32]int64 {
	counts, index, n, next := map[int32]int64{}, int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[next]
			if n != 0 { // client_golang bridges short gaps by empty ones
				counts[index] = n
			}
			index, next = index+1, next+1
		}
	}
	return counts
}

// What is less than the least and more than the most is in the outermost buckets.
// Every bound and its neighbours, beside a search by seconds.
func TestHistogram_CellsAreFoundByNanoseconds(t *testing.T) {
	c := newHistogramCells()
	all := []time.Duration{0, 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, at := range c.nanos {
		for step := -3; step <= 3; step++ {
			all = append(all, time.Duration(at)+time.Duration(step))
		}
	}
	for n := range 62 {
		all = append(all, 1<<n, 1<<n-1, 1<<n+1)
	}
	for _, d := range all {
		want, _ := slices.BinarySearch(c.bounds, d.Seconds())
		if got := c.cell(d); got != want {
			t.Errorf("%s is in cell %d; want %d", d, got, want)
		}
	}
}

func TestHistogram_TheEnds(t *testing.T) {
	v := newHistogramVec(newHistogramCells(), "a_seconds", "help", "route")
	h := v.of("a")
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Hour, 1000 * time.Hour} {
		h.observe(d)
	}
	got := metricOf(t, v, h)
	if got.GetZeroCount() != 3 || got.GetBucket()[0].GetCumulativeCount() != 3 || got.GetSampleCount() != 5 {
		t.Errorf("%v", got)
	}
	if n := nativeCounts(got); len(n) != 1 || n[nativeTo<<nativeSchema] != 2 {
		t.Errorf("native buckets %v; want two in the last one", n)
	}
	if empty := metricOf(t, v, v.of("b")); len(empty.GetPositiveSpan()) != 1 || empty.GetSampleCount() != 0 {
		t.Errorf("%v; want a native histogram without observations", empty)
	}
	if v.of("b") != v.of("b") || v.of("a") == v.of("b") {
		t.Error("a series is not one for each label")
	}
}

// All counts of one look fit together, also while more is observed.
func TestHistogram_CountsFitTogether(t *testing.T) {
	v := newHistogramVec(newHistogramCells(), "a_seconds", "help", "route")
	h := v.of("a")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 20_000 {
				h.observe(time.Duration(i*j) * time.Microsecond)
			}
		})
	}
	for range 200 {
		got := metricOf(t, v, h)
		sum := int64(got.GetZeroCount())
		for _, n := range nativeCounts(got) {
			sum += n
		}
		if sum != int64(got.GetSampleCount()) || got.GetBucket()[len(got.GetBucket())-1].GetCumulativeCount() > got.GetSampleCount() {
			t.Fatalf("%d in native buckets, %d in all", sum, got.GetSampleCount())
		}
	}
	all.Wait()
	if n := metricOf(t, v, h).GetSampleCount(); n != 80_000 {
		t.Errorf("%d observations, want 80000", n)
	}
}

// scrape is what /metrics shows to who accepts kind.
func (w *testProxy) scrape(kind string) string {
	w.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", kind)
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.PanicOnError}).ServeHTTP(rec, r)
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
	m := newMetrics(prometheus.NewRegistry())
	x := &exchange{began: time.Now(), duration: 10 * time.Second, outcome: forwardOutcome{duration: 6 * time.Second}}
	x.route, x.waitTime = &route{Route: &config.Route{Name: "a"}, metrics: &routeMetrics{}}, 3*time.Second
	m.countResponse(x)
	m.countResponse(&exchange{began: time.Now(), duration: time.Second, response: clientResponse{status: 404}})
	for _, c := range []struct {
		v     *histogramVec
		route string
		want  float64
	}{{m.durations, "a", 10}, {m.own, "a", 1}, {m.upstream, "a", 6}, {m.wait, "a", 3}, {m.durations, "none", 1}, {m.own, "none", 1}} {
		if got := metricOf(t, c.v, c.v.of(c.route)); got.GetSampleSum() != c.want || got.GetSampleCount() != 1 {
			t.Errorf("%v of %s: %v in %d, want %v in one", c.v.desc, c.route, got.GetSampleSum(), got.GetSampleCount(), c.want)
		}
	}
	if len(m.upstream.series)+len(m.wait.series) != 2 {
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

func BenchmarkHistogram(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		h, n := newHistogramVec(newHistogramCells(), "a_seconds", "help", "route").of("a"), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			h.observe(time.Duration(n%1000) * 13 * time.Microsecond)
		}
	})
	b.Run("client_golang", func(b *testing.B) {
		h, n := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "a", Buckets: classicBounds(), NativeHistogramBucketFactor: 1.1}), 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			h.Observe((time.Duration(n%1000) * 13 * time.Microsecond).Seconds())
		}
	})
}
