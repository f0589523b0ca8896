package test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// example is config.example.yaml with free ports in the place of its own.
func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, port := range []string{`":8080"`, `"127.0.0.1:9901"`} {
		if strings.Count(text, port) != 1 {
			t.Fatalf("config.example.yaml names %s %d times, want once", port, strings.Count(text, port))
		}
		text = strings.Replace(text, port, `"127.0.0.1:0"`, 1)
	}
	return text
}

func TestQuickStart_ServesTheExampleWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	began := time.Now()
	w := startWith(t, dir) // no arguments at all
	t.Logf("ready after %v", time.Since(began))

	phone := http.Header{"X-Phone": {"+86 138 0013 8000"}}
	if status, _, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", phone); status != http.StatusOK {
		t.Fatalf("first answer is %d %s, want 200", status, body)
	}
	status, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", phone)
	if status != http.StatusTooManyRequests {
		t.Fatalf("second answer is %d %s, want 429", status, body)
	}
	if after, err := strconv.Atoi(header.Get("Retry-After")); err != nil || after < 1 || after > 70 {
		t.Errorf("Retry-After is %q, want 1 to 60 seconds and a little more", header.Get("Retry-After"))
	}
	if got := header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	for _, spelling := range []string{"+8613800138000", "+86-138-0013-8000", "86 13800138000", " (+86) 138 00138000 "} {
		if got := w.send(spelling); got != http.StatusTooManyRequests {
			t.Errorf("the same phone written %q is answered %d, want 429", spelling, got)
		}
	}
	if got := w.send("+86 138 0013 8001"); got != http.StatusOK {
		t.Errorf("another phone is answered %d, want 200", got)
	}
}

func TestQuickStart_ReadsWeirYAMLFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	write(t, filepath.Join(dir, "weir.yaml"), "routes:\n  - {match: {path: /mine}, upstream: echo}\nupstreams: {echo: echo}\n"+weirtest.Listeners)
	w := startWith(t, dir, "run")
	if status, body := w.get(w.URL + "/mine"); status != http.StatusOK {
		t.Errorf("weir.yaml's route is answered %d %s, want 200", status, body)
	}
	if got := w.send("1"); got != http.StatusNotFound {
		t.Errorf("config.example.yaml's route is answered %d, want 404", got)
	}
}

// The few lines with which most operators begin.
func TestQuickStart_SixLines(t *testing.T) {
	t.Parallel()
	api := startBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	w := start(t, `routes:
  - match: {path: /v1/sms/send}
    upstream: `+api.URL+`
    limits:
      - {key: "header:X-Phone", rate: 1/60s}
`)
	if got := w.statuses("1", 2); got[0] != http.StatusAccepted || got[1] != http.StatusTooManyRequests {
		t.Errorf("answers are %v, want 202 and 429", got)
	}
	if status, body := do(t, http.MethodPost, w.URL+"/v1/sms/send", nil); status != http.StatusBadRequest {
		t.Errorf("a request without the key is answered %d %s, want 400", status, body)
	}
	if api.hits() != 1 {
		t.Errorf("the upstream saw %d requests, want 1", api.hits())
	}
}

// The quick start with Redis is followed as it is written, but for the ports
// and the patience with Redis of a busy machine: its file, its two processes with their environment, its questions.
func TestQuickStart_WithRedis(t *testing.T) {
	t.Parallel()
	part := doc(t, "README.md").section(t, "Quick start with Redis")
	server := redistest.Start(t)
	file, asked := part.blocks("yaml")[0], part.blocks("sh")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), strings.Replace(file, `"127.0.0.1:6379"]`, `"`+server.Addr+`"], timeout: 5s`, 1))

	commands := regexp.MustCompile(`(?m)^((?:[A-Z_]+=\S+ )*)\./weir (.+)$`).FindAllStringSubmatch(asked[0], -1)
	if len(commands) != 2 || !strings.HasPrefix(asked[0], "go build .") || !strings.Contains(asked[0], "\nredis-server --port 6379 --maxmemory-policy noeviction\n") || !strings.Contains(file, `"127.0.0.1:6379"`) {
		t.Fatalf("this starts no Redis and two Weirs:\n%s", asked[0])
	}
	var replaced []string
	for _, c := range commands {
		ports := map[string]string{} // as the file reads them
		for _, m := range regexp.MustCompile(`\$\{(\w+):-127\.0\.0\.1:(\d+)\}`).FindAllStringSubmatch(file, -1) {
			ports[m[1]] = m[2]
		}
		if len(ports) != 2 {
			t.Fatalf("the file does not leave both ports to the environment: %v", ports)
		}
		for _, setting := range strings.Fields(c[1]) {
			name, address, _ := strings.Cut(setting, "=")
			if ports[name] == "" {
				t.Fatalf("the file does not know %s", name)
			}
			_, ports[name], _ = strings.Cut(address, ":")
		}
		cmd := exec.Command("weir", strings.Fields(c[2])...)
		cmd.Env = os.Environ()
		for name := range ports {
			cmd.Env = append(cmd.Env, name+"=127.0.0.1:0")
		}
		w := launch(t, dir, cmd)
		replaced = append(replaced, "localhost:"+ports["WEIR_LISTEN"], w.URL, "localhost:"+ports["WEIR_ADMIN_LISTEN"], w.Admin)
	}
	if n := part.ask(t, strings.NewReplacer(replaced...)); n < 4 {
		t.Errorf("%d questions found", n)
	}
}
