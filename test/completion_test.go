package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completionYAML is the configuration whose names shells propose.
const completionYAML = `
keys: {phone: {from: "header:X-Phone", normalize: e164}, ip: client_ip}
routes:
  - {name: sms-send, match: {path: /send}, respond: {body: ok}, limits: [{name: phone, key: phone, rate: 1/1m}, {name: address, key: ip, rate: 1/1m}]}
  - {name: sms-verify, match: {path: /verify}, respond: {body: ok}, limits: [{name: guesses, key: phone, rate: 1/1m}]}
`

// proposals are what fish proposes for lines.
func proposals() map[string]string {
	return map[string]string{
		"weir ch":                        "check",
		"weir check --ag":                "--against",
		"weir check weir.y":              "weir.yaml",
		"weir -c weir.y":                 "weir.yaml",
		"weir simulate --format ":        "auto combined common json",
		"weir completion ":               "bash fish man zsh",
		"weir help pu":                   "push",
		"weir keys pl":                   "plan plans",
		"weir keys ban ph":               "phone=",
		"weir keys get phone=1 --limit ": "address guesses phone",
		"weir top --route sms-v":         "sms-verify",
	}
}

// completing returns a folder with the script for a shell and the configuration, and the shell. Where there is no
// such shell, and none could be installed, that is said.
func completing(t *testing.T, shell, script string) (dir, path string) {
	t.Helper()
	found, err := exec.Command("bash", "install", "--found", shell).Output()
	if err != nil {
		t.Skipf("no %s here, and ./test/run could not install one: what it proposes is not known", shell)
	}
	dir = t.TempDir()
	code, text, stderr := command(t, dir, "completion", shell)
	if code != 0 {
		t.Fatal(stderr)
	}
	for name, text := range map[string]string{script: text, "weir.yaml": completionYAML} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, strings.TrimSpace(string(found))
}

// runShell returns what a program of a shell prints in dir.
func runShell(t *testing.T, dir, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=dumb", "WEIR_ADMIN=127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(path), err, out)
	}
	return string(out)
}

// What zsh proposes cannot be asked without a terminal; it takes the script.
func TestCompletion_Zsh(t *testing.T) {
	t.Parallel()
	dir, zsh := completing(t, "zsh", "_weir")
	if said := runShell(t, dir, zsh, "-f", "-n", "_weir"); said != "" {
		t.Error(said)
	}
}

func TestCompletion_Fish(t *testing.T) {
	t.Parallel()
	dir, fish := completing(t, "fish", "weir.fish")
	program := "source weir.fish\n"
	for line := range proposals() {
		program += "echo '" + line + " =>' (complete -C '" + line + "' | string split -f 1 \\t)\n"
	}
	got := strings.Split(strings.TrimSpace(runShell(t, dir, fish, "--no-config", "-c", program)), "\n")
	for line, proposed := range proposals() {
		if want := line + " => " + proposed; !slices.Contains(got, want) {
			t.Errorf("fish proposes\n%s\nwant %s", strings.Join(got, "\n"), want)
		}
	}
}
