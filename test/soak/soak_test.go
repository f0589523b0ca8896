//go:build soak

// Package soak keeps whole nodes under load for a long time.
package soak

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// Two nodes share limits in Redis, are reloaded, and serve clients that come, refuse, stay
// and leave, for as long as WEIR_SOAK says. What they hold does not grow.
func TestNodes(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("WEIR_SOAK"))
	if err != nil {
		t.Fatalf("WEIR_SOAK: %v", err)
	}
	nodes := startNodes(t)
	l := load{nodes: nodes, until: time.Now().Add(lasts), pace: time.Tick(4 * time.Millisecond)}
	for n := range 8 {
		l.clients.Go(func() { l.client(n) })
	}
	const samples = 30
	every := time.NewTicker(lasts / samples)
	defer every.Stop()
	began := time.Now()
	t.Logf("| minute | served | refused | failed | RSS, MB | goroutines | descriptors |")
	for n := range samples {
		<-every.C
		for _, node := range nodes {
			node.sample(t)
			node.reload(t, n)
		}
		t.Logf("| %.1f | %d | %d | %d | %s | %s | %s |", time.Since(began).Minutes(), l.served.Load(), l.refused.Load(), l.failed.Load(),
			pair(nodes, func(u usage) int { return u.rss >> 20 }), pair(nodes, func(u usage) int { return u.goroutines }), pair(nodes, func(u usage) int { return u.files }))
	}
	l.clients.Wait()
	if l.served.Load() == 0 || l.refused.Load() == 0 || l.failed.Load() > 0 {
		t.Errorf("%d served, %d refused, %d failed", l.served.Load(), l.refused.Load(), l.failed.Load())
	}
	for _, node := range nodes {
		node.wantFlat(t)
	}
}

// startNodes starts two nodes in front of an upstream.
func startNodes(t *testing.T) (nodes []*node) {
	t.Helper()
	program, err := weirtest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, rand.IntN(20_000)))
	}))
	t.Cleanup(upstream.Close)
	redis := redistest.Start(t)
	for range 2 {
		yaml := weirtest.Listeners + fmt.Sprintf(`
store: redis
redis: {addrs: [%q], timeout: 2s}
access_log: {file: %q}
upstreams: {api: {targets: [%q]}}
routes:
  - name: all
    match: {path: /*}
    upstream: api
    limits:
      - {name: rate, key: "header:X-Key", rate: 20/10s}
      - {name: log, key: "header:X-Key", rate: 100/1m, algorithm: sliding_log}
      - {name: slots, key: "header:X-Key", concurrent: 20}
`, redis.Addr, os.DevNull, upstream.URL)
		file := weirtest.Write(t, yaml)
		nodes = append(nodes, &node{Process: weirtest.Start(t, exec.Command(program, "run", "-c", file)), file: file, yaml: yaml})
	}
	return nodes
}

// A load is what clients do at the same time.
type load struct {
	nodes   []*node
	until   time.Time
	pace    <-chan time.Time // of all clients together
	clients sync.WaitGroup

	served, refused, failed atomic.Int64
}

// client is the client n: it keeps connections for some requests, and then gives them up.
func (l *load) client(n int) {
	for i := 0; time.Now().Before(l.until); i++ {
		client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
		for range 50 {
			<-l.pace
			switch ask(client, l.nodes[(n+i)%2].URL) {
			case http.StatusOK:
				l.served.Add(1)
			case http.StatusTooManyRequests:
				l.refused.Add(1)
			default:
				l.failed.Add(1)
			}
		}
		client.CloseIdleConnections()
	}
}

// ask sends a request. One in ten clients leaves before the end of the response.
func ask(client *http.Client, url string) (status int) {
	r, err := http.NewRequest(http.MethodPost, url+"/", strings.NewReader(strings.Repeat("x", rand.IntN(5_000))))
	if err != nil {
		return 0
	}
	r.Header.Set("X-Key", strconv.Itoa(rand.IntN(2_000)))
	if rand.IntN(3) == 0 {
		r.Header.Set("X-Key", "busy")
	}
	res, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if rand.IntN(10) > 0 { // without that, the connection is closed
		_, _ = io.Copy(io.Discard, res.Body)
	}
	return res.StatusCode
}

// usage is what a process holds.
type usage struct{ rss, goroutines, files int }

type node struct {
	*weirtest.Process
	file    string
	yaml    string // at first
	samples []usage
}

func (n *node) sample(t *testing.T) {
	t.Helper()
	res, err := http.Get(n.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var u usage
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "process_resident_memory_bytes":
			u.rss = int(number)
		case "go_goroutines":
			u.goroutines = int(number)
		case "process_open_fds":
			u.files = int(number)
		}
	}
	n.samples = append(n.samples, u)
}

// reload has the node read its file again, which differs each time.
func (n *node) reload(t *testing.T, round int) {
	t.Helper()
	next := filepath.Join(filepath.Dir(n.file), "next.yaml")
	if err := os.WriteFile(next, fmt.Appendf(nil, "%s# %d\n", n.yaml, round), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, n.file); err != nil {
		t.Fatal(err)
	}
}

// wantFlat compares the last third of the samples with the second one: the first is for
// warming up.
func (n *node) wantFlat(t *testing.T) {
	t.Helper()
	third := len(n.samples) / 3
	most := func(samples []usage) (m usage) {
		for _, u := range samples {
			m = usage{max(m.rss, u.rss), max(m.goroutines, u.goroutines), max(m.files, u.files)}
		}
		return m
	}
	middle, end := most(n.samples[third:2*third]), most(n.samples[2*third:])
	if end.rss > middle.rss*11/10+4<<20 || end.goroutines > middle.goroutines+16 || end.files > middle.files+16 {
		t.Errorf("in the second third of the time at most %+v, in the last %+v", middle, end)
	}
}

func pair(nodes []*node, of func(usage) int) string {
	var values []string
	for _, n := range nodes {
		values = append(values, strconv.Itoa(of(n.samples[len(n.samples)-1])))
	}
	return strings.Join(values, " / ")
}
