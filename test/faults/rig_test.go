// Package faults puts toxiproxy between clients, Weir, Redis and upstreams, and takes away
// what Weir needs of the system: disk, descriptors, memory.
package faults

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/weirtest"
)

// slack is what a busy machine may take in addition to a timeout.
const slack = 5 * time.Second

// TestMain builds weir and finds redis-server.
func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // of toxiproxy
	if os.Getenv("WEIR_REDIS_SERVER") == "" {
		redis, err := exec.Command("../install", "redis-server").Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Setenv("WEIR_REDIS_SERVER", strings.TrimSpace(string(redis)))
	}
	weirtest.Main(m)
}

// all reports whether every fault is tried, and not only one of each kind.
func all() bool { return os.Getenv("WEIR_FAULTS") == "all" }

// A link is a toxiproxy between two programs.
type link struct {
	*testing.T
	*toxiproxy.Proxy
}

// newLink begins a link to an address.
func newLink(t *testing.T, upstream string) link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	l := link{t, toxiproxy.NewProxy(server, "link", "127.0.0.1:0", upstream)}
	l.begin()
	t.Cleanup(l.Stop)
	return l
}

func (l link) begin() {
	l.Helper()
	if err := l.Start(); err != nil {
		l.Fatal(err)
	}
}

// Faults besides those of toxiproxy.
const (
	down   = "down"   // connections are refused
	afresh = "afresh" // connections that exist are cut before the next fault, which some toxics spare
)

// disturb adds toxics, given as JSON. Connections that exist are disturbed as well.
func (l link) disturb(toxics ...string) {
	l.Helper()
	for _, toxic := range toxics {
		switch toxic {
		case down:
			l.Stop()
			continue
		case afresh:
			l.Stop()
			l.begin()
			continue
		}
		if _, err := l.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			l.Fatalf("%s: %v", toxic, err)
		}
	}
}

// heal ends all faults. Connections that hang are cut, as by a firewall that has lost them.
func (l link) heal() {
	l.Helper()
	l.Toxics.ResetToxics(context.Background())
	l.Stop()
	l.begin()
}

// toxic is the JSON of a toxic; direction is downstream or upstream.
func toxic(kind, direction, attributes string) string {
	return fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%s}}`, kind, direction, attributes)
}

// both are a toxic in either direction.
func both(kind, attributes string) []string {
	return []string{toxic(kind, "upstream", attributes), toxic(kind, "downstream", attributes)}
}

// A weir is a process that is looked at from outside.
type weir struct {
	*weirtest.Process
	*testing.T
	client *http.Client
	before usage
}

// usage is what a process holds.
type usage struct{ goroutines, files int }

// start starts weir with this configuration. limits is a line of shell before, such as
// "ulimit -n 100".
func start(t *testing.T, yaml, limits string) *weir {
	t.Helper()
	cmd := exec.Command("sh", "-ec", cmp.Or(limits, "true")+`; exec weir run -c "$0"`, weirtest.Write(t, weirtest.Listeners+yaml))
	w := &weir{weirtest.Start(t, cmd), t, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: time.Minute}, usage{}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// metrics returns the value of each metric without labels, once.
func (w *weir) metrics() map[string]float64 {
	w.Helper()
	asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := asks.Get(w.Admin + "/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	values := map[string]float64{}
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		if name, value, found := strings.Cut(s.Text(), " "); found {
			values[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return values
}

func (w *weir) usage() usage {
	w.Helper()
	m := w.metrics()
	return usage{int(m["go_goroutines"]), int(m["process_open_fds"])}
}

// settle remembers what the process holds before a fault.
func (w *weir) settle() {
	w.Helper()
	w.client.CloseIdleConnections()
	w.before = w.usage()
}

// wantNoLeak waits until the process holds hardly more than before: pools of connections
// may have grown by a few.
func (w *weir) wantNoLeak() {
	w.Helper()
	const grown = 8
	w.client.CloseIdleConnections()
	var now usage
	await.Until(w.T, "goroutines and descriptors are given back", func() bool {
		now = w.usage()
		return now.goroutines <= w.before.goroutines+grown && now.files <= w.before.files+grown
	}, stringer(func() string { return fmt.Sprintf("before %+v, now %+v", w.before, now) }))
}

type stringer func() string

func (s stringer) String() string { return s() }

// An answer is what a client got: no status if there was no whole response head.
type answer struct {
	status int
	body   int
	err    error
	took   time.Duration
}

// ask sends a request with a body of that size, unless it is 0.
func (w *weir) ask(url, key string, size int) answer {
	method, body := http.MethodGet, io.Reader(nil)
	if size > 0 {
		method, body = http.MethodPost, strings.NewReader(`{"a": "`+strings.Repeat("x", size)+`"}`)
	}
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{err: err}
	}
	r.Header.Set("X-Key", key)
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := w.client.Do(r)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	return answer{res.StatusCode, int(n), err, time.Since(began)}
}

// askMany sends n requests, some of them at once.
func (w *weir) askMany(n, atOnce int, ask func() answer) answers {
	got := make(chan answer, n)
	turn := make(chan struct{}, atOnce)
	for range n {
		turn <- struct{}{}
		go func() {
			got <- ask()
			<-turn
		}()
	}
	all := answers{status: map[int]int{}}
	for range n {
		a := <-got
		all.status[a.status]++
		if a.err != nil {
			all.failed++
		}
		all.slowest = max(all.slowest, a.took)
	}
	return all
}

// answers are those of several requests.
type answers struct {
	status  map[int]int
	failed  int // did not end as a response should
	slowest time.Duration
}

func (a answers) String() string {
	var b strings.Builder
	for _, status := range []int{200, 408, 429, 502, 503, 504, 0} {
		if n := a.status[status]; n > 0 && status > 0 {
			fmt.Fprintf(&b, "%d × %d, ", n, status)
		} else if n > 0 {
			fmt.Fprintf(&b, "%d without response, ", n)
		}
	}
	if cut := a.failed - a.status[0]; cut > 0 {
		fmt.Fprintf(&b, "%d of them cut, ", cut)
	}
	fmt.Fprintf(&b, "slowest %d ms", a.slowest.Milliseconds())
	return b.String()
}

// only reports whether all are of these.
func (a answers) only(statuses ...int) bool {
	n, sum := 0, 0
	for _, status := range statuses {
		n += a.status[status]
	}
	for _, m := range a.status {
		sum += m
	}
	return n == sum
}

// row adds a row to the table that test/faults/run prints.
func row(t *testing.T, where, fault string, seen ...any) {
	t.Helper()
	t.Logf("| %s | %s | %s |", where, fault, fmt.Sprint(seen...))
}
