package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// heartbeats are the nodes that Redis knows of, and when each was last heard.
func heartbeats(t *testing.T, rdb *redis.Client) map[string]float64 {
	t.Helper()
	nodes, err := rdb.ZRangeWithScores(t.Context(), "weir:{cluster}:nodes", 0, -1).Result()
	check(t, err)
	out := map[string]float64{}
	for _, n := range nodes {
		out[fmt.Sprint(n.Member)] = n.Score
	}
	return out
}

// waitForNodes waits until Redis knows of n nodes.
func waitForNodes(t *testing.T, addr string, n int) {
	t.Helper()
	rdb := redisClient(t, addr)
	await.Until(t, "all nodes are heard", func() bool { return len(heartbeats(t, rdb)) == n })
}

// waitForMembership waits until n nodes have been heard, and each of them once more:
// then each has been told how many there are.
func waitForMembership(t *testing.T, addr string, n int) {
	t.Helper()
	rdb := redisClient(t, addr)
	var first map[string]float64
	await.Until(t, "all nodes are heard", func() bool {
		first = heartbeats(t, rdb)
		return len(first) == n
	})
	await.Until(t, "all nodes are heard again", func() bool {
		again := 0
		for id, at := range heartbeats(t, rdb) {
			if at > first[id] {
				again++
			}
		}
		return again == n
	})
}

// A leadership is what /api/v1/leader says.
type leadership struct {
	Self, Node string
	Since      time.Time
	Token      int64
	Tasks      []taskRun
}

// lease is how long the lead outlives a node that died.
const lease = 10 * time.Second

// A taskRun is the last run of a task.
type taskRun struct {
	Task, Node, Error string
	At, Next          time.Time
	Took              float64 `json:"took_ms"`
}

// leadership asks w who leads.
func (w *weir) leadership() (l leadership) {
	w.t.Helper()
	w.getAdmin("/api/v1/leader", &l)
	return l
}

// getAdmin fetches a page of the admin side into v.
func (w *weir) getAdmin(path string, v any) {
	w.t.Helper()
	status, body := w.get(w.Admin + path)
	if err := json.Unmarshal([]byte(body), v); err != nil || status != http.StatusOK {
		w.t.Fatalf("%s is answered %d %s: %v", path, status, body, err)
	}
}

// startLeading starts n nodes and waits until one of them leads. It returns that one and
// the others.
func startLeading(t *testing.T, n int, config string) (leader *weir, others []*weir) {
	t.Helper()
	var all []*weir
	for range n {
		all = append(all, start(t, config))
	}
	at := leads(t, all)
	return all[at], slices.Concat(all[:at], all[at+1:])
}

// leads waits until one of these nodes leads, and all say so.
func leads(t *testing.T, all []*weir) (at int) {
	t.Helper()
	await.Until(t, "all see one of them lead", func() bool {
		first := all[0].leadership()
		at = slices.IndexFunc(all, func(w *weir) bool { return w.leadership().Self == first.Node })
		return at >= 0 && !slices.ContainsFunc(all, func(w *weir) bool { return w.leadership().Node != first.Node })
	})
	return at
}

func TestLeader_KilledOneIsFollowed(t *testing.T) {
	t.Parallel()
	leader, others := startLeading(t, 3, redisYAML(redistest.Start(t).Addr)+smsYAML("1/1h", ""))
	was := leader.leadership()
	if got := leader.metric("weir_leader") + others[0].metric("weir_leader") + others[1].metric("weir_leader"); got != 1 || leader.metric("weir_leader") != 1 {
		t.Errorf("%v nodes say that they lead, want the one", got)
	}
	leader.Kill()
	killed := time.Now()
	next := others[leads(t, others)]
	now := next.leadership()
	if took := now.Since.Sub(killed); took > 4*lease { // more than one, for a busy machine
		t.Errorf("another leads %v after the kill, want within the lease of %v", took, lease)
	}
	if now.Token <= was.Token {
		t.Errorf("the token is %d after %d, want a larger one", now.Token, was.Token)
	}
	next.WaitForLog("leadership acquired", func(l logtest.Line) bool { return l.Text("node") == now.Self })
	await.Until(t, "the tasks go on under the next leader", func() bool {
		return !slices.ContainsFunc(next.leadership().Tasks, func(r taskRun) bool { return r.Node != now.Self || r.Error != "" })
	})
	await.Until(t, "the killed node is lost", func() bool { return next.metric("weir_cluster_nodes_lost") == 1 })
	if code, stdout, stderr := next.admin(t.TempDir(), "nodes"); code != 0 || !strings.Contains(stdout, was.Self+"  lost ") || strings.Count(stdout, "  ok  ") != 2 {
		t.Errorf("weir nodes exits %d: %s%s; want two nodes, and the killed one", code, stdout, stderr)
	}
	if next.metric(`weir_leader_task_runs_total{result="ok",task="statistics"}`) == 0 {
		t.Error("no run of a task is counted")
	}
}

// A webhook is a webhook that refuses the first of what it is sent.
type webhook struct {
	mu     sync.Mutex
	sent   []alert
	bodies []string
	signed []string
}

type alert struct {
	ID, Kind, Route, Limit, Text, Key, Masked string
	Count, Of                                 int64
}

func (b *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var a alert
	if err := json.Unmarshal(body, &a); err != nil {
		a.Text = err.Error()
	}
	b.sent, b.bodies, b.signed = append(b.sent, a), append(b.bodies, string(body)), append(b.signed, r.Header.Get("Weir-Signature"))
	if len(b.sent) == 1 {
		w.WriteHeader(http.StatusBadGateway)
	}
}

func (b *webhook) of(kind string) (all []alert) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.sent {
		if a.Kind == kind {
			all = append(all, a)
		}
	}
	return all
}

// Two nodes refuse what neither alone would tell of; one alert is sent, again
// after a failure, and none by the next leader. Keys are masked.
func TestAlert_OnceForTheCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	box := new(webhook)
	hook := startBackend(t, box.ServeHTTP)
	leader, others := startLeading(t, 2, redisYAML(server.Addr)+fmt.Sprintf(`alerts: {webhook: %q, secret: sixteen-or-more-chars, refused: 30}
upstreams: {demo: echo}
keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}}
routes:
  - name: sms-send
    match: {path: /v1/sms/send}
    upstream: demo
    limits: [{name: phone, key: phone, rate: 120/1h}]
`, hook.URL))
	const phone = "13800138000"
	leader.statuses(phone, 95)
	others[0].statuses(phone, 25) // 120 in all
	for again := true; again; {   // refusals are counted by the minute: those that two minutes may count are sent again
		began := time.Now().Add(-time.Second)
		others[0].statuses(phone, 20)
		leader.statuses(phone, 15)
		again = !began.Truncate(time.Minute).Equal(time.Now().Add(time.Second).Truncate(time.Minute))
	}
	// A leader that died before this would leave an alert to be sent once more.
	rdb := redisClient(t, server.Addr)
	await.Until(t, "both alerts are sent, and known to be", func() bool {
		return len(box.of("refused")) > 0 && len(box.of("used")) > 0 && rdb.LLen(t.Context(), "weir:{cluster}:alerts").Val() == 0
	})
	leader.Kill()
	others[0].statuses(phone, 35)
	next := others[leads(t, others)]
	await.Until(t, "the next leader has looked", func() bool {
		return next.metric(`weir_leader_task_runs_total{result="ok",task="alerts"}`) >= 4
	})
	ids := map[string]string{}
	for _, a := range append(box.of("refused"), box.of("used")...) {
		if first, known := ids[a.Kind]; known && first != a.ID {
			t.Errorf("there are two alerts %s: %+v", a.Kind, a)
		}
		ids[a.Kind] = a.ID
		if a.Route != "sms-send" || a.Limit != "phone" || a.Text == "" || a.Kind == "refused" && a.Count < 30 || a.Kind == "used" && (a.Count < 96 || a.Of != 120 || a.Key == "" || !strings.Contains(a.Masked, "*")) {
			t.Errorf("an alert is %+v", a)
		}
	}
	if said := strings.Join(box.bodies, "\n"); len(box.sent) != 3 || strings.Contains(said, phone) {
		t.Errorf("the webhook was sent %d times, want twice and once again, without the number:\n%s", len(box.sent), said)
	}
	if said := next.log.String(); strings.Contains(said, hook.URL) || strings.Contains(said, "sixteen-or-more") {
		t.Error("the webhook or the secret is in the log")
	}
	verifySignature(t, box.signed[0], box.bodies[0])
}

// verifySignature checks a signature as the documents say.
func verifySignature(t *testing.T, signature, body string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), `package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"
)

`+doc(t, "proxy/docs/log.md").section(t, "Alerts").blocks("go")[0]+`
func main() {
	fmt.Print(genuine(os.Args[1], os.Args[2], []byte(os.Args[3]), time.Now()), " ",
		genuine(os.Args[1]+"x", os.Args[2], []byte(os.Args[3]), time.Now()), " ",
		genuine(os.Args[1], os.Args[2], []byte(os.Args[3]+" "), time.Now()), " ",
		genuine(os.Args[1], os.Args[2], []byte(os.Args[3]), time.Now().Add(time.Hour)))
}
`)
	cmd := exec.CommandContext(t.Context(), "go", "run", filepath.Join(dir, "main.go"), "sixteen-or-more-chars", signature, body)
	said, err := cmd.CombinedOutput()
	if err != nil || string(said) != "true false false false" {
		t.Errorf("the documents' way to check says %s %v; want true, and false for another secret, another body and an old one", said, err)
	}
	seconds, _, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",")
	if at, err := strconv.ParseInt(seconds, 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Errorf("the signature %q is not of now", signature)
	}
}
