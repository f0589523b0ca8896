//go:build versions

// Package versions runs nodes of an older version beside those of this one.
package versions

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A pair is a node of the older version and one of this version, over one Redis.
type pair struct {
	*testing.T
	older, newer *weirtest.Process
	programs     map[*weirtest.Process]string
}

// startPair starts both nodes with the same configuration.
func startPair(t *testing.T, yaml string) pair {
	t.Helper()
	program, err := weirtest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	yaml = weirtest.Listeners + fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 10s}\n", redistest.Start(t).Addr) + yaml
	p := pair{T: t, programs: map[*weirtest.Process]string{}}
	run := func(program string) *weirtest.Process {
		node := weirtest.Start(t, exec.Command(program, "run", "-c", weirtest.Write(t, yaml)))
		p.programs[node] = program
		return node
	}
	p.older, p.newer = run(os.Getenv("WEIR_OLDER")), run(program)
	return p
}

// ask sends a request to a node.
func (p pair) ask(node *weirtest.Process, path string, n int) (status int, body string) {
	r, err := http.NewRequest(http.MethodGet, node.URL+path, nil)
	if err != nil {
		p.Error(err)
		return 0, ""
	}
	r.Header.Set("X-Key", "one")
	r.Header.Set("X-Value", strconv.Itoa(n))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.Error(err)
	}
	return res.StatusCode, string(text)
}

// A sharedLimit is a limit that both versions know, and how many of 200 requests it grants.
type sharedLimit struct {
	name, limit string
	grants      int
}

// An older node and one of today share every limit: together they grant what one would.
func TestVersions_ShareLimits(t *testing.T) {
	limits := []sharedLimit{
		{"token_bucket", "rate: 50/1h", 50},
		{"token_bucket_rates", "rates: [50/1h, 60/24h]", 50},
		{"token_bucket_merged", "rate: 150/1h", 150},
		{"token_bucket_penalty", "rates: [50/1h], penalty: {ban: 1h, after: 3}", 50},
		{"sliding_log", "rate: 50/1h, algorithm: sliding_log", 50},
		{"fixed_window", "rate: 50/24h, algorithm: fixed_window", 50},
		{"sliding_window", "rate: 50/24h, algorithm: sliding_window", 50},
		{"gcra", "rate: 50/24h, algorithm: gcra, burst: 50", 50},
		{"cooldown", "cooldown: [1h, 2h]", 1},
		{"distinct", `distinct: "header:X-Value", rate: 50/1h`, 50},
		{"redisson", `rate: 50/1h, redisson_name: "versions:{key}"`, 50},
	}
	var yaml strings.Builder
	yaml.WriteString("routes:\n")
	for _, l := range limits {
		fmt.Fprintf(&yaml, "  - {name: %s, match: {path: /%s}, respond: {body: ok}, limits: [{name: all, key: \"header:X-Key\", %s}]}\n", l.name, l.name, l.limit)
	}
	p := startPair(t, yaml.String())
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			var granted [2]atomic.Int64
			var clients sync.WaitGroup
			for n := range 200 {
				clients.Go(func() {
					node := []*weirtest.Process{p.older, p.newer}[n%2]
					switch status, body := p.ask(node, "/"+l.name, n); status {
					case http.StatusOK:
						granted[n%2].Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("status %d: %s", status, body)
					}
				})
			}
			clients.Wait()
			older, newer := int(granted[0].Load()), int(granted[1].Load())
			t.Logf("the older node granted %d, the newer %d", older, newer)
			if l.name == "distinct" { // 0.1.0 does not see what this version has counted, as CHANGELOG says
				if newer < 1 || newer > l.grants || older+newer < l.grants {
					t.Errorf("the newer node granted %d, want at most %d, and both together as many", newer, l.grants)
				}
			} else if older+newer != l.grants {
				t.Errorf("together %d granted, want %d", older+newer, l.grants)
			}
		})
	}
}

// revision is a configuration that both versions know, and tells its number.
func revision(n int) string {
	return fmt.Sprintf("version: 1\nroutes: [{name: all, match: {path: /*}, respond: {body: \"%d\"}}]\n", n)
}

// push pushes a configuration with the program of a node, through that node.
func (p pair) push(node *weirtest.Process, yaml string) (out string, err error) {
	p.Helper()
	file := filepath.Join(p.TempDir(), "next.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		p.Fatal(err)
	}
	text, err := exec.Command(p.programs[node], "push", file, "--admin", strings.TrimPrefix(node.Admin, "http://")).CombinedOutput()
	return string(text), err
}

// serve waits until both nodes serve the revision n.
func (p pair) serve(n int) {
	p.Helper()
	for _, node := range []*weirtest.Process{p.older, p.newer} {
		await.Until(p.T, fmt.Sprintf("revision %d is served", n), func() bool {
			_, body := p.ask(node, "/", 0)
			return body == strconv.Itoa(n)
		})
	}
}

// What either node pushes, both serve. What the older one cannot read, neither does: a
// field of today, or another version of the format.
func TestVersions_PushesToEachOther(t *testing.T) {
	p := startPair(t, "reload: {source: redis}\n"+revision(0))
	p.serve(0)
	await.Until(t, "both nodes know each other", func() bool {
		out, err := p.push(p.older, revision(1))
		return err == nil && strings.Contains(out, "2 nodes")
	})
	p.serve(1)
	if out, err := p.push(p.newer, revision(2)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.serve(2)
	for want, wrong := range map[string]string{
		`unknown field "was"`:        strings.Replace(revision(3), "respond:", "limits: [{name: all, was: all.former, key: client_ip, rate: 5/1h}], respond:", 1),
		"version: 2 is out of range": strings.Replace(revision(3), "version: 1", "version: 2", 1),
	} {
		if out, err := p.push(p.newer, wrong); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s is pushed: %v\n%s; want that an older node refuses it: %s", wrong, err, out, want)
		}
		p.serve(2)
	}
	if out, err := exec.Command(p.programs[p.older], "rollback", "--admin", strings.TrimPrefix(p.older.Admin, "http://")).CombinedOutput(); err != nil {
		t.Errorf("rollback: %v: %s", err, out)
	}
	p.serve(1)
}
