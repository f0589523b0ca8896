package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// night is what three nodes serve: each phone has so many codes an hour, and each
// address more than anybody here asks for.
func night(redis, rate string) string {
	return redisYAML(redis) + `keys: {phone: {from: "header:X-Phone", normalize: e164, sensitive: true}, ip: client_ip}
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: phone, key: phone, rate: ` + rate + `}, {name: ip, key: ip, rate: 10000/1h}]
  - name: search
    match: {path: /search}
    upstream: demo
    limits: [{name: ip, key: ip, rate: 10000/1h, mode: shadow}]
`
}

// A visit is a request, as the log of a load balancer before the nodes has it.
type visit struct {
	Time   string `json:"time"`
	Method string `json:"request_method"`
	URI    string `json:"request_uri"`
	Client string `json:"remote_addr"`
	Phone  string `json:"http_x_phone,omitempty"`
	Status int    `json:"status"`
	id     string
}

// traffic sends codes to phones and searches, through all nodes at once: a few to most
// phones, and to one so many that most are refused.
func traffic(t *testing.T, nodes []*weir, often string) (log []visit) {
	t.Helper()
	var (
		mu    sync.Mutex // guards log
		sends sync.WaitGroup
	)
	for i, w := range nodes {
		sends.Go(func() {
			for n := range 30 {
				v := visit{Time: time.Now().UTC().Format(time.RFC3339Nano), Method: "POST", URI: "/send", Client: "127.0.0.1", Phone: fmt.Sprintf("+86138001%05d", 100*i+n/2)}
				switch n % 3 {
				case 0:
					v.Phone = often
				case 1:
					v.Method, v.URI, v.Phone = "GET", "/search?q=a", ""
				}
				status, header, _ := exchange(t, v.Method, w.URL+v.URI, http.Header{"X-Phone": {v.Phone}})
				v.Status, v.id = status, header.Get("X-Request-Id")
				mu.Lock()
				log = append(log, v)
				mu.Unlock()
			}
		})
	}
	sends.Wait()
	return log
}

// An operator with nothing but the command line finds, of three nodes and mixed
// traffic, which limit refuses most and whom, why one request was refused and when it
// passes, unblocks that key on all of them, and learns who leads, whether configurations
// differ, and what a stricter rule would have done to what was logged.
func TestNight_ByTheCommandLineAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := []*weir{start(t, night(server.Addr, "3/1h")), start(t, night(server.Addr, "3/1h")), start(t, night(server.Addr, "3/1h"))}
	waitForMembership(t, server.Addr, len(nodes))
	const often = "+8613800138000"
	log := traffic(t, nodes, often)
	asked := nodes[1] // whichever

	screen := asked.once("3 of 3")
	limits, keys := section(screen, "LIMITS"), section(screen, "KEYS")
	if f := strings.Fields(limits[0]); f[0] != "send.phone" || f[1] != "27" || f[2] != "60" {
		t.Errorf("the limit that refuses most is %q, want send.phone with 27 of 60", limits[0])
	}
	if f := strings.Fields(keys[0]); f[0] != "send.phone" || f[1] != "phone=+86138****8000" || f[2] != "27" || f[3] != "30" {
		t.Errorf("the key that is refused most is %q, want the phone with 27 of 30", keys[0])
	}
	if strings.Contains(screen, often) {
		t.Errorf("the phone stands in\n%s", screen)
	}

	var refused visit
	for _, v := range log {
		if v.Status == http.StatusTooManyRequests {
			refused = v
		}
	}
	asked.explains(refused.id, "429, refused", "phone-1h", "phone=+86138****8000")
	said := asked.keys("get", "phone="+often)
	if !regexp.MustCompile(`send\.phone +3/1h +3 +0 +(?:1h0m0s|59m\d+s)`).MatchString(said) {
		t.Errorf("keys get says %q; want that none is left, and that one comes back in an hour", said)
	}

	asked.keys("reset", "phone="+often, "--reason", "she called")
	for i, w := range nodes {
		await.Until(t, fmt.Sprintf("the phone passes on node %d", i+1), func() bool {
			status, _ := do(t, http.MethodPost, w.URL+"/send", http.Header{"X-Phone": {often}})
			return status == http.StatusOK
		})
	}

	if leads := strings.Count(strings.Join(section(asked.once("all serve one config"), "NODES"), "\n"), " leads "); leads != 1 {
		t.Errorf("%d nodes lead", leads)
	}
	write(t, nodes[2].File, night(server.Addr, "4/1h")+weirtest.Listeners)
	await.Until(t, "it is seen that configurations differ", func() bool { return strings.Contains(asked.once(), "serves another config") })
	asked.replays(log, "3/1h", "1/1h")
}

// once is what weir top prints once it has all these words in it.
func (w *weir) once(words ...string) (screen string) {
	w.t.Helper()
	await.Until(w.t, "top tells of "+strings.Join(words, ", "), func() bool {
		code, stdout, stderr := w.admin(w.t.TempDir(), "top", "--once")
		if code != 0 {
			w.t.Fatalf("weir top exits %d: %s", code, stderr)
		}
		screen = stdout
		for _, want := range words {
			if !strings.Contains(stdout, want) {
				return false
			}
		}
		return !strings.Contains(stdout, "no answer")
	})
	return screen
}

// section are the rows of one table of weir top.
func section(screen, title string) []string {
	_, rest, _ := strings.Cut(screen, "\n"+title+"\n")
	rest, _, _ = strings.Cut(rest, "\n\n")
	return strings.Split(rest, "\n")[1:] // without the columns
}

// replays wants weir simulate to refuse under each of two rates what they say.
func (w *weir) replays(log []visit, rate, stricter string) {
	w.t.Helper()
	dir := w.t.TempDir()
	write(w.t, filepath.Join(dir, "weir.yaml"), night("127.0.0.1:1", rate))
	write(w.t, filepath.Join(dir, "stricter.yaml"), night("127.0.0.1:1", stricter))
	var lines strings.Builder
	sent := map[string]int{}
	for _, v := range log {
		if err := json.NewEncoder(&lines).Encode(v); err != nil {
			w.t.Fatal(err)
		}
		if v.Phone != "" {
			sent[v.Phone]++
		}
	}
	write(w.t, filepath.Join(dir, "access.log"), lines.String())
	var most, fewest int
	for _, n := range sent {
		most, fewest = most+max(n-1, 0), fewest+max(n-3, 0)
	}
	code, stdout, stderr := command(w.t, dir, "simulate", "-c", "weir.yaml", "--compare", "stricter.yaml", "access.log")
	want := regexp.MustCompile(fmt.Sprintf(`(?m)^send +phone +%s +%s +%d +%d +\+%d `, rate, stricter, fewest, most, most-fewest))
	if code != 0 || !want.MatchString(stdout) {
		w.t.Errorf("simulate exits %d: %s%s; want %d refused under %s, and %d under %s", code, stdout, stderr, fewest, rate, most, stricter)
	}
}
