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
	dir := t.TempDir()
	program, err := weirtest.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, rand.IntN(20_000)))
	}))
	defer upstream.Close()
	redis := redistest.Start(t)
	var nodes []*node
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
	until := time.Now().Add(lasts)
	pace := time.Tick(4 * time.Millisecond) // of all clients together
	var load sync.WaitGroup
	var served, refused, failed atomic.Int64
	for n := range 8 {
		load.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				// Connections are kept for some requests, and then given up.
				client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
				for range 50 {
					<-pace
					switch status := ask(client, nodes[(n+i)%2].URL, rand.IntN(10) == 0); status {
					case http.StatusOK:
						served.Add(1)
					case http.StatusTooManyRequests:
						refused.Add(1)
					default:
						failed.Add(1)
					}
				}
				client.CloseIdleConnections()
			}
		})
	}
	const samples = 30
	began := time.Now()
	t.Logf("| minute | served | refused | failed | RSS, MB | goroutines | descriptors |")
	for n := range samples + 1 {
		<-time.After(time.Until(began.Add(lasts * time.Duration(n) / samples)))
		for _, node := range nodes {
			node.sample(t)
		}
		t.Logf("| %.1f | %d | %d | %d | %s | %s | %s |", time.Since(began).Minutes(), served.Load(), refused.Load(), failed.Load(),
			pair(nodes, func(u usage) int { return u.rss >> 20 }), pair(nodes, func(u usage) int { return u.goroutines }), pair(nodes, func(u usage) int { return u.files }))
		for _, node := range nodes {
			node.reload(t, n)
		}
	}
	load.Wait()
	if served.Load() == 0 || refused.Load() == 0 || failed.Load() > 0 {
		t.Errorf("%d served, %d refused, %d failed", served.Load(), refused.Load(), failed.Load())
	}
	for _, node := range nodes {
		node.wantFlat(t)
	}
}

// ask sends a request, which is given up after a moment if it leaves.
func ask(client *http.Client, url string, leaves bool) (status int) {
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
	if !leaves { // without that, the connection is closed
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
