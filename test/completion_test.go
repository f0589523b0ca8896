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
		"weir --config=weir.y":           "--config=weir.yaml",
		"weir --log-level=w":             "--log-level=warn",
		"weir help push ":                "",
		"weir simulate --format ":        "auto combined common json",
		"weir completion ":               "bash fish man zsh",
		"weir help pu":                   "push",
		"weir keys pl":                   "plan plans",
		"weir keys ban ph":               "phone=",
		"weir keys get phone=1 --limit ": "address guesses phone",
		"weir top --route sms-v":         "sms-verify",
	}
}

// Fish proposes what there is. Where there is no fish, ./test/run has said that it could not install one.
func TestCompletion_Fish(t *testing.T) {
	t.Parallel()
	fish, err := exec.Command("bash", "install", "--found", "fish").Output()
	if err != nil {
		t.Log("no fish here: what it proposes is not known")
		return
	}
	dir := t.TempDir()
	code, script, stderr := command(t, dir, "completion", "fish")
	if code != 0 {
		t.Fatal(stderr)
	}
	for name, text := range map[string]string{"weir.fish": script, "weir.yaml": completionYAML} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := "source weir.fish\n"
	for line := range proposals() {
		program += "echo '" + line + " =>' (complete -C '" + line + "' | string split -f 1 \\t)\n"
	}
	cmd := exec.Command(strings.TrimSpace(string(fish)), "--no-config", "-c", program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=dumb", "WEIR_ADMIN=127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	for line, proposed := range proposals() {
		if want := strings.TrimSpace(line + " => " + proposed); !slices.Contains(got, want) {
			t.Errorf("fish proposes\n%s\nwant %s", out, want)
		}
	}
}
