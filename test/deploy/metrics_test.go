package deploy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// served is /metrics of a weir that has answered, refused and not found. Package weirtest
// would start it in less, but this module may not require Weir's: promtool would be built
// with the modules that Weir needs instead of those that it was released with.
func served(t *testing.T, accept string) string {
	t.Helper()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "weir"), filepath.Join(dir, "weir.yaml")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	config := `
listen: {http: "127.0.0.1:0"}
admin: {http: "127.0.0.1:0"}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [{name: l, key: client_ip, rate: 1/1h}]}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	weir := exec.Command(binary, "-c", file)
	log, err := weir.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := weir.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = weir.Process.Kill()
		_ = weir.Wait()
	})
	var said struct{ Message, HTTP, Admin string }
	for lines := bufio.NewScanner(log); said.Message != "serving"; {
		if !lines.Scan() {
			t.Fatal("weir does not serve")
		}
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	for _, path := range []string{"/a", "/a", "/nowhere"} {
		get(t, "http://"+said.HTTP+path, "")
	}
	return get(t, "http://"+said.Admin+"/metrics", accept)
}

// get is the body of an answer.
func get(t *testing.T, url, accept string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Prometheus' own checker has nothing to say about what a real weir shows.
func TestMetrics_PromtoolIsContent(t *testing.T) {
	text := served(t, "text/plain")
	if !strings.Contains(text, `weir_own_duration_seconds_count{route="a"} 2`) {
		t.Fatalf("these are no metrics of a weir that was asked:\n%s", text)
	}
	if said, err := promtoolReads(t, text, "check", "metrics"); err != nil || said != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
	if said, err := promtoolReads(t, "weir_wrong 1\n", "check", "metrics"); err == nil {
		t.Errorf("a metric without help passes: %s", said)
	}
}
