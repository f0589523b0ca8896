package proxy

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A testProxy is a proxy with its file, its log and its figures, in front of the
// built-in echo unless the file says otherwise.
type testProxy struct {
	testing.TB
	*Proxy
	path     string
	log      logtest.Log
	registry *prometheus.Registry
	store    *failingStore
}

// A failingStore is a memory store that can be made to fail.
type failingStore struct {
	*limiter.Memory
	err atomic.Pointer[error]
}

func (f *failingStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Memory.Take(ctx, claims, d)
}

func (f *failingStore) fail(err error) { f.err.Store(&err) }

// reading returns what reads the configuration at a path again.
func reading(path string) func(context.Context) (*config.Config, error) {
	return func(context.Context) (*config.Config, error) { return config.Load(path) }
}

// newProxy makes a proxy whose file has these lines; "LIMITS" stands for nothing.
func newProxy(t testing.TB, yaml string, change ...func(*Options)) *testProxy {
	t.Helper()
	w := &testProxy{TB: t, path: filepath.Join(t.TempDir(), "weir.yaml"), registry: prometheus.NewRegistry()}
	w.store = &failingStore{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
	w.write(yaml)
	c, err := config.Load(w.path)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Read: reading(w.path), Config: c, Store: w.store, Registry: w.registry, Log: zerolog.New(&w.log)}
	for _, f := range change {
		f(&o)
	}
	if w.Proxy, err = New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Proxy.Close)
	return w
}

// bare makes a proxy that neither logs nor can fail, whose costs are measured.
func bare(o *Options) {
	o.Store, o.Log = limiter.NewMemory(limiter.MemoryOptions{}), zerolog.Nop()
}

func (p *testProxy) write(yaml string) {
	p.Helper()
	filetest.Write(p, yaml, p.path)
}

// reloads serves another file from now on.
func (p *testProxy) reloads(yaml string) Report {
	p.Helper()
	p.write(yaml)
	report, err := p.Reload(p.Context())
	if err != nil || !report.Changed {
		p.Fatalf("Reload = %+v, %v; want a change", report, err)
	}
	return report
}

// send sends a request with "Name: value" header lines from 192.0.2.1. A line
// that is none of a header is the body.
func (p *testProxy) send(method, target string, lines ...string) *httptest.ResponseRecorder {
	var body io.Reader
	if i := slices.IndexFunc(lines, func(line string) bool { return line[0] == '{' || !strings.Contains(line, ": ") }); i >= 0 {
		body = strings.NewReader(lines[i])
		lines = slices.Delete(slices.Clone(lines), i, i+1)
	}
	r := httptest.NewRequest(method, target, body)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	rec := httptest.NewRecorder()
	p.ServeHTTP(rec, r)
	return rec
}

// ServeHTTP serves one request over HTTP/1.1.
func (p *testProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { weirtest.ServeHTTP(p, w, r) }

func (p *testProxy) sends(want int, method, target string, lines ...string) *httptest.ResponseRecorder {
	p.Helper()
	rec := p.send(method, target, lines...)
	if rec.Code != want {
		p.Errorf("%s %s %v = %d; want %d\n%s", method, target, lines, rec.Code, want, rec.Body)
	}
	return rec
}

// sendsAll sends the same request once for each of these statuses, and wants it.
func (p *testProxy) sendsAll(want []int, method, target string, lines ...string) {
	p.Helper()
	for i, status := range want {
		if rec := p.send(method, target, lines...); rec.Code != status {
			p.Errorf("%s %s %v, request %d of %d = %d; want %d\n%s", method, target, lines, i+1, len(want), rec.Code, status, rec.Body)
		}
	}
}

// times is a status n times.
func times(n, status int) []int { return slices.Repeat([]int{status}, n) }

// counted wants a figure of the proxy to have this value.
func (p *testProxy) counted(want float64, figure prometheus.Collector) {
	p.Helper()
	if got := testutil.ToFloat64(figure); math.Abs(got-want) > 1e-9 {
		one := make(chan prometheus.Metric, 1)
		figure.Collect(one)
		of, labels := <-one, new(dto.Metric)
		_ = of.Write(labels)
		p.Errorf("%v of %v is %v; want %v", of.Desc(), labels, got, want)
	}
}

// hasField wants a field of a response to have this value.
func (p *testProxy) hasField(rec *httptest.ResponseRecorder, name, want string) {
	p.Helper()
	if got := rec.Header().Get(name); got != want {
		p.Errorf("%s = %s; want %s", name, got, want)
	}
}

// atOnce runs do n times at once, and returns how often it said yes.
func atOnce(n int, do func(i int) bool) (said int) {
	var yes atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if do(i) {
				yes.Add(1)
			}
		})
	}
	all.Wait()
	return int(yes.Load())
}

// lines are the lines of the log that carry this message.
func (p *testProxy) lines(message string) []map[string]any {
	p.Helper()
	var found []map[string]any
	for line := range strings.Lines(p.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			p.Fatalf("log line %q: %v", line, err)
		}
		if fields["message"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// limitYAML is one route with these limits.
func limitYAML(limits string) string {
	return "upstreams: {demo: echo}\nroutes:\n  - {name: a, match: {path: /a}, upstream: demo, limits: [" + limits + "]}\n"
}

// signedToken returns a token with these claims.
func signedToken(t *testing.T, method jwt.SigningMethod, secret any, claims jwt.MapClaims) string {
	t.Helper()
	signed, err := jwt.NewWithClaims(method, claims).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// bearer is the header line of a token with these claims, which ends in an hour.
func bearer(t *testing.T, secret string, claims jwt.MapClaims) string {
	t.Helper()
	claims["exp"] = time.Now().Add(time.Hour).Unix()
	return "Authorization: Bearer " + signedToken(t, jwt.SigningMethodHS256, []byte(secret), claims)
}
