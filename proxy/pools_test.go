package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// until waits for a condition that other goroutines bring about.
func (p *testProxy) until(holds func() bool) {
	p.Helper()
	await.Until(p.TB, "the condition", holds)
}

// closedURL is the URL of a server that is not there.
func closedURL(t *testing.T) string {
	t.Helper()
	return "http://" + sockettest.ClosedAddr(t)
}

// startNamedBackend says who it is.
func startNamedBackend(t *testing.T, name string) string {
	return startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

// poolYAML is one route to an upstream with these options.
func poolYAML(options string, urls ...string) string {
	return "upstreams: {u: {targets: ['" + strings.Join(urls, "', '") + "'], " + options + "}}\n" +
		"routes:\n  - {name: a, match: {path: /a}, upstream: u, limits: [{name: l, key: global, rate: 1000/1h}]}\n"
}

func (p *testProxy) upstreamRequests(target, result string) float64 {
	return testutil.ToFloat64(p.metrics.upstreamRequests.WithLabelValues("u", target, result))
}

// healthy is what the figures say of a target of upstream u: "1", "0", or "" if
// they say nothing.
func (p *testProxy) healthy(target string) string {
	p.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "weir_upstream_healthy" && m.Label[0].GetValue() == target {
				return fmt.Sprint(m.Gauge.GetValue())
			}
		}
	}
	return ""
}

func TestPools_Retry(t *testing.T) {
	alive, dead := startNamedBackend(t, "alive"), closedURL(t)
	w := newProxy(t, poolYAML("retries: 1", dead, alive))
	w.sendsAll(times(4, 200), "POST", "/a")
	if ok, retries := w.upstreamRequests(alive, "ok"), testutil.ToFloat64(w.metrics.retries.WithLabelValues("u")); ok != 4 || retries == 0 || w.upstreamRequests(dead, "connect") != 0 {
		t.Errorf("%v were answered after %v retries, want 4 after some", ok, retries)
	}
}

func TestPools_HealthOutlivesAReload(t *testing.T) {
	alive, dead := startNamedBackend(t, "alive"), closedURL(t)
	const options = "health: {after: 1, rest: 1h}"
	w := newProxy(t, poolYAML(options, dead, alive))
	w.sends(502, "GET", "/a")
	if w.healthy(dead) != "0" || w.healthy(alive) != "1" {
		t.Fatalf("healthy: %q and %q, want 0 and 1", w.healthy(dead), w.healthy(alive))
	}
	third := startNamedBackend(t, "third")
	w.reloads(poolYAML(options, dead, alive, third))
	w.sendsAll(times(6, 200), "GET", "/a")
	if w.upstreamRequests(third, "ok") != 3 || w.upstreamRequests(alive, "ok") != 3 {
		t.Errorf("alive answered %v and third %v, want 3 each: dead still rests", w.upstreamRequests(alive, "ok"), w.upstreamRequests(third, "ok"))
	}
	w.reloads(poolYAML(options, alive))
	if got := w.healthy(dead); got != "" {
		t.Errorf("a target that is gone from the file is said to be %q", got)
	}
}

func TestPools_LooksDecide(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	flaky := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	w := newProxy(t, poolYAML("health: {path: /healthz, interval: 1ms, timeout: 10s, after: 1}", flaky))
	w.until(func() bool { return w.healthy(flaky) == "0" })
	rec := w.sends(503, "GET", "/a")
	if rec.Header().Get("Retry-After") != "1" || w.upstreamRequests("", "no_target") != 1 {
		t.Errorf("Retry-After %q, %v without a target", rec.Header().Get("Retry-After"), w.upstreamRequests("", "no_target"))
	}
	if line := w.lines("request")[0]; line["refunded"] != true {
		t.Errorf("log line %v: a request that nobody was asked for counts", line)
	}
	sick.Store(false)
	w.until(func() bool { return w.healthy(flaky) == "1" })
	w.sends(200, "GET", "/a")
}

// A target that is removed serves what it has begun, and gets nothing more.
func TestPools_RemovedTargetsDrain(t *testing.T) {
	arrived, goOn := make(chan bool, 1), make(chan bool)
	old := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-goOn
		_, _ = io.WriteString(w, "old")
	})
	w := newProxy(t, poolYAML("retries: 0", old))
	var first *httptest.ResponseRecorder
	var all sync.WaitGroup
	all.Go(func() { first = w.send("GET", "/a") })
	await.Value(t, arrived, "request")
	w.reloads(poolYAML("retries: 0", startNamedBackend(t, "new")))
	if got := w.sends(200, "GET", "/a").Body.String(); got != "new" {
		t.Errorf("%q answers, want new", got)
	}
	close(goOn)
	all.Wait()
	if first.Code != 200 || first.Body.String() != "old" {
		t.Errorf("the request under way got %d %q", first.Code, first.Body)
	}
}

func TestPools_ByKey(t *testing.T) {
	one, two, three := startNamedBackend(t, "one"), startNamedBackend(t, "two"), startNamedBackend(t, "three")
	w := newProxy(t, poolYAML("balance: 'hash:header:X-User'", one, two, three))
	got := map[string]string{}
	seen := map[string]bool{}
	for i := range 40 {
		user := fmt.Sprint("X-User: ", i)
		got[user] = w.sends(200, "GET", "/a", user).Body.String()
		seen[got[user]] = true
	}
	for user, target := range got {
		if again := w.sends(200, "GET", "/a", user).Body.String(); again != target {
			t.Errorf("%s went to %s and to %s", user, target, again)
		}
	}
	if len(seen) != 3 {
		t.Errorf("only %v were asked", seen)
	}
	turns := ""
	for range 3 { // without the key, and with a key that is given twice
		turns += w.sends(200, "GET", "/a").Body.String()
	}
	w.sends(200, "GET", "/a", "X-User: 1", "X-User: 2")
	for name := range seen {
		if !strings.Contains(turns, name) {
			t.Errorf("without a key the targets were asked %s, want each once", turns)
		}
	}
}

func TestPools_FullIsBusy(t *testing.T) {
	arrived, goOn := make(chan bool, 2), make(chan bool)
	slow := startUpstream(t, func(http.ResponseWriter, *http.Request) { arrived <- true; <-goOn })
	w := newProxy(t, poolYAML("max_connections: 1, queue: {length: 1, timeout: 1h}", slow))
	got := make(chan *httptest.ResponseRecorder, 3)
	send := func() { got <- w.send("GET", "/a") }
	var all sync.WaitGroup
	all.Go(send)
	<-arrived
	all.Go(send) // of these two one waits, and there is no room for the other
	all.Go(send)
	if rec := <-got; rec.Code != 503 || rec.Header().Get("Retry-After") != "1" {
		t.Errorf("got %d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
	}
	close(goOn)
	all.Wait()
	for range 2 {
		if rec := <-got; rec.Code != 200 {
			t.Errorf("got %d for one that waited its turn", rec.Code)
		}
	}
	if n := w.upstreamRequests("", "busy"); n != 1 {
		t.Errorf("%v are said to have been refused for want of room, want 1", n)
	}
}

func TestPools_Forwarded(t *testing.T) {
	tell := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Forwarded")) })
	for options, want := range map[string]string{"forwarded: true": "for=192.0.2.1;host=example.com;proto=http", "forwarded: false": ""} {
		if got := newProxy(t, poolYAML(options, tell)).sends(200, "GET", "/a").Body.String(); got != want {
			t.Errorf("%s: target reads Forwarded %q, want %q", options, got, want)
		}
	}
}

func TestPools_TLSAndHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto, " ", r.TLS.ServerName, " ", len(r.TLS.PeerCertificates))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	pair := s.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := fmt.Sprintf("tls: {ca: %[1]s/cert.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem, server_name: example.com}", dir)
	for protocol, want := range map[string]string{"http1": "HTTP/1.1 example.com 1", "h2": "HTTP/2.0 example.com 1"} {
		if got := newProxy(t, poolYAML("protocol: "+protocol+", "+files, s.URL)).sends(200, "GET", "/a").Body.String(); got != want {
			t.Errorf("%s: got %q, want %q", protocol, got, want)
		}
	}
	newProxy(t, poolYAML("protocol: h2", s.URL)).sends(502, "GET", "/a") // nobody vouches for it
}

// What operators read of upstreams is what has happened to requests.
func TestUpstreams_TellWhatHappened(t *testing.T) {
	dead := closedURL(t)
	w := newProxy(t, poolYAML("health: {after: 1}, retries: 0", dead, startNamedBackend(t, "b")))
	for range 4 {
		w.send("GET", "/a")
	}
	all := w.Upstreams()
	if len(all) != 1 || all[0].Name != "u" || !slices.Equal(all[0].Routes, []string{"a"}) || all[0].Balance != "round_robin" || all[0].Protocol != "http1" || len(all[0].Targets) != 2 {
		t.Fatalf("upstreams = %+v", all)
	}
	a, b := all[0].Targets[0], all[0].Targets[1]
	if a.Target != dead || a.State != "ejected" || a.Requests != 1 || a.Errors != 1 || a.Results["connect"] != 1 || a.FailedConnects != 1 || a.EjectedUntil.IsZero() {
		t.Errorf("the target that is gone: %+v", a)
	}
	if b.State != "healthy" || b.Requests != 3 || b.Errors != 0 || b.Results["ok"] != 3 || b.InFlight != 0 || b.Share != 1 {
		t.Errorf("the target that answers: %+v", b)
	}
}
