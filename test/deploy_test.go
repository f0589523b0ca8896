package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/test/filetest"
)

func readDeployFile(t *testing.T, name string) string {
	t.Helper()
	b := filetest.Read(t, filepath.Join("deploy", name))
	return string(b)
}

// A parseUnit is the assignments of a systemd unit, under "Section.Name".
func parseUnit(t *testing.T, name string) map[string]string {
	t.Helper()
	section, out := "", map[string]string{}
	for line := range strings.Lines(readDeployFile(t, name)) {
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
// it has the time to drain, and what shuts it in is all there.
func TestDeploy_UnitsSayWhatWeirDoes(t *testing.T) {
	service, socket := parseUnit(t, "weir.service"), parseUnit(t, "weir.socket")
	for field, want := range map[string]string{
		"Unit.After": "network-online.target weir.socket", "Unit.Wants": "network-online.target",
		"Service.Type": "notify", "Service.ExecReload": "/bin/kill -HUP $MAINPID", "Service.ExecStart": "/usr/bin/weir run -c /etc/weir/weir.yaml",
		"Service.EnvironmentFile": "-/etc/weir/environment", "Service.Restart": "on-failure", "Service.TimeoutStopSec": "40",
		"Service.DynamicUser": "yes", "Service.StateDirectory": "weir", "Service.ConfigurationDirectory": "weir",
		"Service.AmbientCapabilities": "CAP_NET_BIND_SERVICE", "Service.CapabilityBoundingSet": "CAP_NET_BIND_SERVICE",
		"Service.NoNewPrivileges": "yes", "Service.RestrictSUIDSGID": "yes", "Service.ProtectProc": "invisible", "Service.ProtectSystem": "strict", "Service.ProtectHome": "yes", "Service.PrivateTmp": "yes",
		"Install.WantedBy": "multi-user.target",
	} {
		if got := service[field]; got != want {
			t.Errorf("weir.service: %s is %q, want %q", field, got, want)
		}
	}
	for field, want := range map[string]string{"Socket.FileDescriptorName": "http", "Socket.ListenStream": "8080", "Install.WantedBy": "sockets.target"} {
		if got := socket[field]; got != want {
			t.Errorf("weir.socket: %s is %q, want %q", field, got, want)
		}
	}
	if seconds, err := strconv.Atoi(service["Service.WatchdogSec"]); err != nil || seconds < 10 {
		t.Errorf("the watchdog bites after %q s (%v): a machine that pauses would lose its Weir", service["Service.WatchdogSec"], err)
	}
}

// systemdErrors are what systemd says of the units.
func systemdErrors(t *testing.T, analyze, service, socket string) (out []string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.service"), strings.NewReplacer("/usr/bin/weir run", "/bin/true run", "/usr/bin/weir check", "/bin/true check").Replace(service))
	write(t, filepath.Join(dir, "weir.socket"), socket)
	said, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "weir.service"), filepath.Join(dir, "weir.socket")).CombinedOutput()
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "weir.so") || strings.Contains(line, "weir.se") {
			out = append(out, line)
		}
	}
	if err != nil && len(out) == 0 {
		out = append(out, err.Error()+": "+string(said))
	}
	return out
}

// Where systemd is, it reads the units too, and would say what is wrong with them.
func TestDeploy_SystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd is not here: its own check is left out")
		return
	}
	service, socket := readDeployFile(t, "weir.service"), readDeployFile(t, "weir.socket")
	if said := systemdErrors(t, analyze, service, socket); len(said) > 0 {
		t.Errorf("systemd says: %s", said)
	}
	for right, wrong := range map[string]string{
		"ProtectSystem=strict": "ProtectSystem=always", "WatchdogSec=20": "WatchdogSecs=20", "Restart=on-failure": "Restart=sometimes",
		"ExecStart=/usr/bin/weir": "ExecStart=/usr/bin/nobody", "ListenStream=8080": "ListenStream=eighty",
	} {
		if !strings.Contains(service+socket, right) {
			t.Errorf("the units do not hold %s any more", right)
		}
		if said := systemdErrors(t, analyze, strings.Replace(service, right, wrong, 1), strings.Replace(socket, right, wrong, 1)); len(said) == 0 {
			t.Errorf("systemd takes %s", wrong)
		}
	}
}

// What systemd itself gives the unit for how shut in it is: 10 is not at all, 0
// cannot serve anybody.
func TestDeploy_SystemdShutsTheUnitIn(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd is not here: its score is left out")
		return
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.service"), readDeployFile(t, "weir.service"))
	said, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", filepath.Join(dir, "weir.service")).CombinedOutput()
	score := regexp.MustCompile(`Overall exposure level for weir\.service: (\d+\.\d)`).FindSubmatch(said)
	if score == nil {
		t.Logf("this systemd gives no score to a file (%v): %s", err, said)
		return
	}
	if got, _ := strconv.ParseFloat(string(score[1]), 64); got >= 2 {
		t.Errorf("the score is %s, want below 2:\n%s", score[1], said)
	}
}

// documents are those of a file of several, as YAML reads them.
func documents(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for part := range strings.SplitSeq(text, "\n---\n") {
		var doc map[string]any
		check(t, yaml.Unmarshal([]byte(part), &doc))
		out = append(out, doc)
	}
	return out
}

// The rules in the ConfigMap are good, and the pod has more time than they take to
// drain.
func TestDeploy_Kubernetes(t *testing.T) {
	kinds := map[string]map[string]any{}
	for _, doc := range documents(t, readDeployFile(t, "weir.k8s.yaml")) {
		kind, _ := doc["kind"].(string)
		if doc["apiVersion"] == nil || doc["metadata"].(map[string]any)["name"] != "weir" {
			t.Errorf("%v", doc)
		}
		kinds[kind] = doc
	}
	for _, kind := range []string{"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} {
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

// The alerts and the dashboard speak of metrics that there are. Prometheus' own tools
// read them too, in test/deploy.
func TestDeploy_NamesMetricsThatAre(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"weir.rules.yaml", "grafana/weir.json"} {
		named := regexp.MustCompile(`weir_[a-z_]+`).FindAllString(readDeployFile(t, file), -1)
		if len(named) < 6 {
			t.Fatalf("%s speaks of %v only", file, named)
		}
		for _, name := range named {
			if name = strings.TrimSuffix(name, "_bucket"); !strings.Contains(prose(t), "`"+name) {
				t.Errorf("%s speaks of %s, which no document knows", file, name)
			}
		}
	}
}

// Who has installed a package continues with the quick start: its requests get what the
// README says.
func TestPackage_ServesTheQuickStart(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "release/package/weir.yaml")
	config := strings.Replace(string(text), `":8080"`, `"127.0.0.1:0"`, 1) + "admin: {http: \"127.0.0.1:0\"}\n"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), config)
	w := startWith(t, dir, "-c", "weir.yaml")
	if n := doc(t, "README.md").section(t, "Quick start").ask(t, strings.NewReplacer("localhost:8080", w.URL)); n != 5 {
		t.Errorf("the quick start has %d requests, want 5", n)
	}
}
