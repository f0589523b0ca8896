package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// With --found nothing is installed: what PATH has is taken if it is recent
// enough, and otherwise it says what to do.
func TestInstall_FindsWhatIsRecentEnough(t *testing.T) {
	for version, want := range map[string]bool{
		"":                             false, // none at all
		"Redis server v=6.0.16 sha=0":  false,
		"Redis server v=6.2.0 sha=0":   true,
		"Redis server v=7.0.15 sha=0":  true,
		"Redis server v=10.0.1 sha=0":  true,
		"Valkey server v=8.1.1 sha=0":  true,
		"redis-server: cannot execute": false,
	} {
		dir := t.TempDir() // a clone without a cache, and a system with a few tools
		tools(t, dir)
		script, err := os.ReadFile("install")
		if err != nil {
			t.Fatal(err)
		}
		program(t, filepath.Join(dir, "install"), string(script))
		if version != "" {
			program(t, filepath.Join(dir, "redis-server"), "#!/bin/sh\necho '"+version+"'\n")
		}
		cmd := exec.Command("bash", filepath.Join(dir, "install"), "--found", "redis-server")
		cmd.Env = []string{"PATH=" + dir}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		if found := err == nil; found != want {
			t.Errorf("%q is found: %v, want %v\n%s", version, found, want, stderr.String())
		}
		if want && strings.TrimSpace(stdout.String()) != filepath.Join(dir, "redis-server") {
			t.Errorf("%q is found at %q", version, stdout.String())
		}
		if !want && !strings.Contains(stderr.String(), "WEIR_REDIS_SERVER") {
			t.Errorf("%q: nobody is told what to do: %s", version, stderr.String())
		}
	}
}

// What PATH has is used; what is not there is named, with what to do; and what
// nobody knows is not looked for.
func TestInstall_NamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	tools(t, dir)
	script, err := os.ReadFile("install")
	if err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(dir, "install"), string(script))
	program(t, filepath.Join(dir, "wrk"), "#!/bin/sh\n")
	for name, want := range map[string]struct{ stdout, stderr string }{
		"wrk":    {filepath.Join(dir, "wrk"), ""},
		"h2load": {"", "no h2load here; ./test/run without -short installs one"},
		"wrench": {"", "what is wrench? Name one of redis-server curl"},
		"":       {"", "Name one of"},
	} {
		cmd := exec.Command("bash", filepath.Join(dir, "install"), "--found", name)
		cmd.Env = []string{"PATH=" + dir}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); (err == nil) != (want.stderr == "") {
			t.Errorf("%q: %v", name, err)
		}
		if got := strings.TrimSpace(stdout.String()); got != want.stdout || !strings.Contains(stderr.String(), want.stderr) {
			t.Errorf("%q: %q, and said %q; want %q, %q", name, got, stderr.String(), want.stdout, want.stderr)
		}
	}
}

// tools links the programs that the script needs before it installs anything.
func tools(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"dirname", "grep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
