package deploy

import (
	"fmt"
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
