package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

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
	others[0].statuses(phone, 45) // 120 in all, and 20 refused
	leader.statuses(phone, 15)    // 35 refused
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

`+doc(t, "proxy/cluster/README.md").section(t, "Alerts").blocks("go")[0]+`
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
