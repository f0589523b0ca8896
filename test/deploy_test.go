package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A unit is the assignments of a systemd unit, under "Section.Name".
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	section, out := "", map[string]string{}
	for line := range strings.Lines(deployed(t, name)) {
		line = strings.TrimSpace(line)
		if m := regexp.MustCompile(`^\[(\w+)\]$`).FindStringSubmatch(line); m != nil {
			section = m[1]
		} else if field, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			out[section+"."+field] = value
		}
	}
	return out
}

// The units say what weir does: it notifies, its socket has a name that it knows,
// and it has the time to drain. Where systemd is, that reads them too.
func TestDeploy_Units(t *testing.T) {
	service, socket := unit(t, "weir.service"), unit(t, "weir.socket")
	if service["Service.Type"] != "notify-reload" || service["Service.WatchdogSec"] == "" || service["Service.ExecStart"] != "/usr/bin/weir run -c /etc/weir/weir.yaml" {
		t.Errorf("the service is %v", service)
	}
	if socket["Socket.FileDescriptorName"] != "http" || socket["Socket.ListenStream"] == "" {
		t.Errorf("the socket is %v", socket)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd is not here: its own check is left out")
		return
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.service"), strings.Replace(deployed(t, "weir.service"), "/usr/bin/weir run", "/bin/true run", 1))
	write(t, filepath.Join(dir, "weir.socket"), deployed(t, "weir.socket"))
	out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "weir.service"), filepath.Join(dir, "weir.socket")).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, dir) && !strings.Contains(line, "notify-reload") { // older than 253
			t.Errorf("systemd says: %s", line)
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze: %v %s", err, out)
	}
}

// documents are those of a file of several, as YAML reads them.
func documents(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for part := range strings.SplitSeq(text, "\n---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatal(err)
		}
		out = append(out, doc)
	}
	return out
}

// The rules in the ConfigMap are good, and the pod has more time than they take to
// drain.
func TestDeploy_Kubernetes(t *testing.T) {
	kinds := map[string]map[string]any{}
	for _, doc := range documents(t, deployed(t, "weir.k8s.yaml")) {
		kind, _ := doc["kind"].(string)
		if doc["apiVersion"] == nil || doc["metadata"].(map[string]any)["name"] != "weir" {
			t.Errorf("%v", doc)
		}
		kinds[kind] = doc
	}
	for _, kind := range []string{"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"} {
		if kinds[kind] == nil {
			t.Fatalf("there is no %s", kind)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), kinds["ConfigMap"]["data"].(map[string]any)["weir.yaml"].(string))
	cmd := exec.Command("weir", "check", "weir.yaml")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN=a-long-token-for-a-test", "WEIR_KEY_SECRET=a-long-secret-for-a-test-of-the-config")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the config is not good: %s", out)
	}
	pod := kinds["Deployment"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	if got := pod["terminationGracePeriodSeconds"]; got != 40 {
		t.Errorf("the pod has %v s to end; it says that it drains for 25", got)
	}
}

// The alerts speak of metrics that there are. promtool, which Prometheus brings,
// has read the file as well where it is here.
func TestDeploy_AlertsNameMetricsThatAre(t *testing.T) {
	rules := deployed(t, "weir.rules.yaml")
	if len(documents(t, rules)) != 1 {
		t.Fatal("the rules are not one document")
	}
	named := regexp.MustCompile(`weir_[a-z_]+`).FindAllString(rules, -1)
	if len(named) < 6 {
		t.Fatalf("the rules speak of %v only", named)
	}
	for _, name := range named {
		if name = strings.TrimSuffix(name, "_bucket"); !strings.Contains(readme(t), "`"+name) {
			t.Errorf("an alert speaks of %s, which the README does not know", name)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not here: its own check is left out")
		return
	}
	if out, err := exec.Command(promtool, "check", "rules", "deploy/weir.rules.yaml").CombinedOutput(); err != nil {
		t.Errorf("promtool: %v %s", err, out)
	}
}
