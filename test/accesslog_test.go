package test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// requestIDs are the ids of requests in a file of the access log, in their order.
func requestIDs(t *testing.T, path string) (all []string) {
	t.Helper()
	text := filetest.Read(t, path)
	for text := range strings.Lines(string(text)) {
		var l struct {
			Message string `json:"message"`
			ID      string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Message != "request" {
			t.Fatalf("line %q of %s: %v", text, path, err)
		}
		all = append(all, l.ID)
	}
	return all
}

// The access log is rotated as logrotate does it, by renaming and SIGUSR1, while
// requests come: each has one line, in one of the files.
func TestAccessLog_RotationLosesNoLine(t *testing.T) {
	t.Parallel()
	w := start(t, "access_log: {file: access.log}\nupstreams: {demo: echo}\nroutes: [{name: a, match: {path: /*}, upstream: demo}]\n")
	path := filepath.Join(w.Dir, "access.log")
	var sent sync.Map
	var asked atomic.Int64
	stop := keepAsking(t, 4, time.Millisecond, func(_ int, c *http.Client) {
		res, err := c.Get(w.URL + "/a")
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
		sent.Store(res.Header.Get("X-Request-Id"), true)
		asked.Add(1)
	})
	files := []string{path}
	for i := range 5 {
		before := asked.Load()
		await.Until(t, "requests are sent", func() bool { return asked.Load() > before+50 || t.Failed() })
		rotated := path + "." + string(rune('1'+i))
		check(t, os.Rename(path, rotated))
		files = append(files, rotated)
		w.Signal(syscall.SIGUSR1)
		await.Until(t, "there is a new file", func() bool {
			_, err := os.Stat(path)
			return err == nil
		})
	}
	stop()
	w.Signal(syscall.SIGTERM)
	w.Exit()
	seen := map[string]bool{}
	for _, file := range files {
		for _, id := range requestIDs(t, file) {
			if _, known := sent.Load(id); seen[id] || !known {
				t.Errorf("request %s has two lines, or was never sent", id)
			}
			seen[id] = true
		}
	}
	if n := asked.Load(); int64(len(seen)) != n || n == 0 {
		t.Errorf("%d lines of %d requests", len(seen), n)
	}
	if n := w.log.Count("request"); n != 0 {
		t.Errorf("%d lines of requests are on standard error as well", n)
	}
	if n := w.log.Count("access log reopened"); n == 0 || n > 5 {
		t.Errorf("it is said %d times that the log was reopened", n)
	}
}

// A weir without a file takes the signal and goes on.
func TestAccessLog_SignalWithoutAFile(t *testing.T) {
	t.Parallel()
	w := start(t, "access_log: {format: combined}\n"+smsYAML("1/1h", ""))
	w.Signal(syscall.SIGUSR1)
	w.WaitForLog("no access_log.file to reopen", nil)
	w.statuses("+1 650 555 0100", 1)
	combined := regexp.MustCompile(`(?m)^127\.0\.0\.1 - - \[.* \+0000\] "POST /v1/sms/send HTTP/1\.1" 200 \d+ "-" "Go-http-client/1\.1"$`)
	await.Until(t, "the line of the request", func() bool { return combined.MatchString(w.log.String()) })
}

// Where the file cannot be written, weir says so and does not start.
func TestAccessLog_AFolderThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), "access_log: {file: nowhere/access.log}\n"+smsYAML("1/1h", "")+weirtest.Listeners)
	cmd := exec.Command("weir", "-c", "weir.yaml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), `access_log.file: "nowhere/access.log" cannot be written`) || !strings.Contains(string(out), "name a file in one that Weir may write to") {
		t.Errorf("%v: %s", err, out)
	}
}

// Whoever reads the log by machine must not stumble over a line.
func TestLog_IsJSONAlsoWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+smsYAML("9/1h", ""))
	w.statuses("p", 2)
	server.Kill()
	w.statuses("p", 8)
	w.get(w.Admin + "/readyz")
	w.Signal(syscall.SIGTERM)
	w.Exit()
	for text := range strings.Lines(w.log.String()) {
		if !json.Valid([]byte(text)) {
			t.Fatalf("a line of the log is not JSON: %s", text)
		}
	}
}

const tracedRoutes = "upstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo}]\n"

// What was traced until the end has arrived at the collector when weir has ended.
func TestTraces_ArriveAtACollector(t *testing.T) {
	t.Parallel()
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			t.Errorf("%v: %q", err, body)
		}
		for _, resource := range data.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans.Add(int64(len(scope.GetSpans())))
			}
		}
	}))
	defer collector.Close()
	w := start(t, "traces: {endpoint: \""+collector.URL+"\", sample: 100%}\n"+tracedRoutes)
	const requests = 50
	for range requests {
		w.get(w.URL + "/a")
	}
	w.Signal(syscall.SIGTERM)
	w.Exit()
	if n := spans.Load(); n != 2*requests {
		t.Errorf("%d spans, want one of each request and one of its upstream", n)
	}
}

// A collector that takes what it is sent and never answers keeps nobody waiting: neither
// requests, nor the end of weir for longer than a drain.
func TestTraces_ACollectorThatHangs(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	asked := make(chan struct{}, 1000)
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hangs
	}))
	defer collector.Close()
	defer close(hangs)
	w := start(t, "traces: {endpoint: \""+collector.URL+"\", sample: 100%}\n"+tracedRoutes)
	w.get(w.URL + "/a")
	<-asked
	const dropped = `weir_trace_spans_total{result="dropped"}`
	for sent := 0; sent%100 > 0 || w.metric(dropped) < 500; sent++ { // when there is no room any more
		if status, _ := w.get(w.URL + "/a"); status != http.StatusOK || sent == 20_000 {
			t.Fatalf("after %d requests status %d, and %v spans are dropped", sent, status, w.metric(dropped))
		}
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("weir ends with %d", code)
	}
}
