package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool is Prometheus' own checker: what PATH has, or what test/install has
// left.
func promtool(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	return promtoolReads(t, "", args...)
}

// promtoolReads is promtool with an input.
func promtoolReads(t *testing.T, input string, args ...string) (said string, err error) {
	t.Helper()
	cached, err := filepath.Abs("../.cache/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, candidate := range []string{"promtool", cached} {
		if path, err := exec.LookPath(candidate); err == nil {
			command := exec.Command(path, args...)
			command.Stdin = strings.NewReader(input)
			out, err := command.CombinedOutput()
			return string(out), err
		}
	}
	t.Fatal("promtool is not here: run test/install promtool, as ./test/proof manifests does")
	return "", nil
}

func TestAlerts_PromtoolAcceptsRulesAndConfig(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "weir.rules.yaml"}, {"check", "config", "--lint=all", "--lint-fatal", "prometheus.yaml"}} {
		if said, err := promtool(t, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
}

// An alerting is one alert of weir.rules.yaml.
type alerting struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T, rules string) (out []alerting) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alerting } }
	if err := yaml.Unmarshal([]byte(rules), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		out = append(out, group.Rules...)
	}
	return out
}

// Each alert wakes somebody when it should and lets him sleep when it should not,
// played on time series by promtool.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	if said, err := promtool(t, "test", "rules", "weir.rules.test.yaml"); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "weir.rules.test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, story := range file.Tests {
		for _, c := range story.Cases {
			tried[fmt.Sprint(c.Alert, len(c.Fires) > 0)] = true
		}
	}
	for _, a := range alerts(t, read(t, "weir.rules.yaml")) {
		if !tried[a.Alert+"true"] || !tried[a.Alert+"false"] {
			t.Errorf("%s is not tried, or not in both ways", a.Alert)
		}
		if severity := a.Labels["severity"]; severity != "page" && severity != "ticket" || a.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", a.Alert, severity, a.Annotations["summary"])
		}
	}
}

// An alert that would never fire, or always, does not pass its trial: so the trial
// is one.
func TestAlerts_TrialSeesAWrongRule(t *testing.T) {
	rules := read(t, "weir.rules.yaml")
	for _, a := range alerts(t, rules) {
		for _, wrong := range []string{a.Expr + " and vector(0) > 1", "vector(1)"} {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"weir.rules.yaml":      strings.Replace(rules, "expr: "+a.Expr+"\n", "expr: "+wrong+"\n", 1),
				"weir.rules.test.yaml": read(t, "weir.rules.test.yaml"),
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if said, err := promtool(t, "test", "rules", filepath.Join(dir, "weir.rules.test.yaml")); err == nil {
				t.Errorf("%s passes with %s: %s", a.Alert, wrong, said)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

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
