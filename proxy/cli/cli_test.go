package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	stdlog "log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

// A screen is where a command writes; commands may write at any time.
type screen struct {
	mu sync.Mutex // guards what follows
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// weir runs a command to its end.
func weir(args ...string) (code int, stdout, stderr string) {
	var out, errs screen
	code = Run(context.Background(), args, Env{Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

// file writes a configuration that listens on free ports.
func file(t *testing.T, more string) string {
	t.Helper()
	return write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: echo}]\nupstreams: {echo: echo}\n"+more)
}

func write(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun_Usage(t *testing.T) {
	if code, _, stderr := weir("sing"); code != exitUsage || !strings.Contains(stderr, "--help") {
		t.Errorf("weir sing = %d, %q; want %d and where to look", code, stderr, exitUsage)
	}
	if code, stdout, _ := weir("--help"); code != exitOK || !strings.Contains(stdout, "check") {
		t.Errorf("weir --help = %d, %q", code, stdout)
	}
}

func TestRun_NoConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := weir(); code != exitFault || !strings.Contains(stderr, "weir.yaml") {
		t.Errorf("weir in an empty folder = %d, %q; want that it says what to write", code, stderr)
	}
}

func TestCheck(t *testing.T) {
	good := file(t, "")
	if code, stdout, _ := weir("check", good); code != exitOK || !strings.HasSuffix(stdout, ": ok\n") || strings.Count(stdout, "(note)\n") != 2 {
		t.Errorf("check of a good file = %d, %q", code, stdout)
	}
	if code, stdout, _ := weir("check", "--effective", good); code != exitOK || !strings.Contains(stdout, "on_store_failure: local") {
		t.Errorf("check --effective = %d, %q; want the defaults", code, stdout)
	}
	bad := file(t, "sturdy: true\nlisten: {}\n")
	if code, stdout, _ := weir("check", bad); code != exitFault || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, bad+":5:1: ") {
		t.Errorf("check of a bad file = %d, %q; want two problems with their places", code, stdout)
	}
}

func TestSchemaAndVersion(t *testing.T) {
	if code, stdout, _ := weir("schema"); code != exitOK || !json.Valid([]byte(stdout)) {
		t.Errorf("schema = %d, %q; want JSON", code, stdout)
	}
	if code, stdout, _ := weir("version"); code != exitOK || !strings.HasPrefix(stdout, "weir ") {
		t.Errorf("version = %d, %q", code, stdout)
	}
}

func TestHealthcheck(t *testing.T) {
	if code, _, stderr := weir("healthcheck", "--admin", "127.0.0.1:1"); code != exitFault || stderr == "" {
		t.Errorf("healthcheck of nobody = %d, %q; want that it says so", code, stderr)
	}
	if got := reachable(":9901"); got != "localhost:9901" {
		t.Errorf("reachable(:9901) = %s", got)
	}
	if got := reachable("0.0.0.0:9901"); got != "localhost:9901" {
		t.Errorf("reachable(0.0.0.0:9901) = %s", got)
	}
	if got := reachable("[::]:9901"); got != "localhost:9901" {
		t.Errorf("reachable([::]:9901) = %s", got)
	}
	if got := reachable("10.0.0.1:9901"); got != "10.0.0.1:9901" {
		t.Errorf("reachable(10.0.0.1:9901) = %s", got)
	}
	c := healthcheckCommand{Config: file(t, "nonsense")}
	if got := c.configured(); got != defaultAdmin {
		t.Errorf("admin address of a file that does not load = %s; want %s", got, defaultAdmin)
	}
}

func TestDefaultAdminIsTheLoaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("routes: [{match: {path: /}, upstream: 'http://127.0.0.1:1'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil || c.Admin.HTTP != defaultAdmin {
		t.Errorf("admin = %v, %v; want %s", c, err, defaultAdmin)
	}
}

// serving runs weir until the test ends, and returns its log and what the log
// says of a message, as soon as it says it.
func serving(t *testing.T, path string, reload chan os.Signal) (stop func() int, says func(message string) map[string]any) {
	t.Helper()
	var errs screen
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"run", "-c", path}, Env{Stdout: &errs, Stderr: &errs, Reload: reload})
	}()
	stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { stop() })
	says = func(message string) map[string]any {
		t.Helper()
		deadline := time.After(20 * time.Second)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			for line := range strings.Lines(errs.String()) {
				var fields map[string]any
				if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == message {
					return fields
				}
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("no %q within 20 s in:\n%s", message, errs.String())
			}
		}
	}
	return stop, says
}

func TestServe_FromStartToDrain(t *testing.T) {
	path := file(t, "")
	reload := make(chan os.Signal, 1)
	stop, says := serving(t, path, reload)
	started := says("serving")
	for _, url := range []string{"http://" + started["http"].(string) + "/a", "http://" + started["admin"].(string) + "/readyz"} {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("%s = %d", url, answer.StatusCode)
		}
	}
	if code, _, stderr := weir("healthcheck", "--admin", started["admin"].(string)); code != exitOK {
		t.Errorf("healthcheck = %d, %q", code, stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("routes: nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload <- os.Interrupt // any signal on that channel is the one to reload
	if got := says("reload refused"); got["file"] != path || got["line"] != 1.0 || got["column"] != 9.0 {
		t.Errorf("the log says %v; want the place", got)
	}
	admin := "http://" + started["admin"].(string)
	if ready, metrics := fetch(t, admin+"/readyz"), fetch(t, admin+"/metrics"); !strings.Contains(ready, `"degraded"`) || !strings.Contains(ready, "refused since") ||
		strings.Contains(ready, "nonsense") || !strings.Contains(metrics, "\nweir_config_last_reload_successful 0\n") {
		t.Errorf("while the refusal stands readyz says %s", ready)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil { // as it was: nothing changes, and all is well again
		t.Fatal(err)
	}
	reload <- os.Interrupt
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(fetch(t, admin+"/metrics"), "\nweir_config_last_reload_successful 1\n") && time.Now().Before(deadline) {
	}
	if ready := fetch(t, admin+"/readyz"); !strings.Contains(ready, `"status":"ok"`) {
		t.Errorf("after the edit is undone readyz says %s", ready)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d; want %d", code, exitOK)
	}
	says("drained")
}

// fetch is what is answered at a URL.
func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServe_PortTaken(t *testing.T) {
	_, says := serving(t, file(t, ""), nil)
	taken := says("serving")["http"].(string)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	yaml := "listen: {http: '" + taken + "'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: 'http://127.0.0.1:1'}]\n"
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := weir("run", "-c", path); code != exitFault || !strings.Contains(stderr, "another weir") {
		t.Errorf("a second weir on one port = %d, %q; want that it says so", code, stderr)
	}
}

func TestServe_StartsWithoutRedis(t *testing.T) {
	path := file(t, "store: redis\nredis: {addrs: ['127.0.0.1:1']}\n")
	_, says := serving(t, path, nil)
	started := says("serving")
	says("redis unreachable; limits go by on_store_failure")
	answer, err := http.Get("http://" + started["admin"].(string) + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var doc struct{ Status string }
	if err := json.NewDecoder(answer.Body).Decode(&doc); err != nil || doc.Status != "degraded" {
		t.Errorf("readyz = %+v, %v; want degraded", doc, err)
	}
}

func TestWhisper_LibrariesSpeakJSON(t *testing.T) {
	var errs screen
	path := file(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if code := Run(ctx, []string{"run", "-c", path, "--log-level", "debug"}, Env{Stdout: &errs, Stderr: &errs}); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, errs.String())
	}
	stdlog.Print("Unsolicited response")
	var last map[string]any
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last["error"] != "Unsolicited response" || last["level"] != "debug" {
		t.Errorf("the last line is %s; want what the library said, as JSON at debug level", lines[len(lines)-1])
	}
}

// A process that lives is found whatever its file says by now: nothing, another
// address, or nonsense.
func TestHealthcheck_FindsARunningWeir(t *testing.T) {
	path := file(t, "")
	stop, says := serving(t, path, nil)
	says("serving")
	for name, text := range map[string]string{
		"a typo":          "admin: {htp: '127.0.0.1:9901'}\nroutes: nonsense\n",
		"no YAML":         "{{{",
		"another address": "admin: {http: '127.0.0.1:1'}\nroutes: [{match: {path: /a}, respond: {body: a}}]\n",
		"nothing":         "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := weir("healthcheck", "-c", path); code != exitOK {
			t.Errorf("with %s in the file: %d, %q; want that it is found", name, code, stderr)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := weir("healthcheck", "-c", path); code != exitOK {
		t.Errorf("without the file: %d, %q; want that it is found", code, stderr)
	}
	stop()
	if code, _, _ := weir("healthcheck", "-c", path, "--within", "500ms"); code != exitFault {
		t.Errorf("after its end: %d; want %d", code, exitFault)
	}
}

// What cannot be written is said at the start, and not with the first push.
func TestServe_SaysWhatItCannotWrite(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file") // no folder can be made in its place, by root either
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"reload.keep " + blocked + "/kept.json cannot be written: ": file(t, "store: redis\nredis: {addrs: ['127.0.0.1:1']}\nreload: {source: redis, keep: "+blocked+"/kept.json}\n"),
		"listen.tls.acme.storage " + blocked + "/acme cannot be written: ": listened(t,
			"http: '127.0.0.1:0', https: '127.0.0.1:0', tls: {acme: {domains: [a.example], storage: "+blocked+"/acme}}"),
	} {
		if code, _, stderr := weir("run", "-c", path); code != exitFault || !strings.Contains(stderr, want) || !strings.Contains(stderr, "may write to") {
			t.Errorf("exit code %d, %q; want %q", code, stderr, want)
		}
	}
}

func TestMounted_IsAFileThatIsAMount(t *testing.T) {
	const mounts = `24 30 0:22 / /proc rw,nosuid - proc proc rw
611 590 8:1 /srv/weir.yaml /etc/weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
612 590 8:1 /srv/a /etc/my\040weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
613 590 8:1 /srv/dir /etc/folder ro,relatime - ext4 /dev/sda1 rw
`
	for path, want := range map[string]bool{
		"/etc/weir/weir.yaml": true, "/etc/weir/../weir/weir.yaml": true, "/etc/my weir/weir.yaml": true,
		"/etc/folder/weir.yaml": false, "/etc/weir/other.yaml": false, "weir.yaml": false,
	} {
		if got := mounted(path, strings.NewReader(mounts)); got != want {
			t.Errorf("%s: %v; want %v", path, got, want)
		}
	}
}
