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
		installer(t, dir)
		if version != "" {
			program(t, filepath.Join(dir, "redis-server"), "#!/bin/sh\necho '"+version+"'\n")
		}
		cmd := exec.Command("bash", filepath.Join(dir, "install"), "--found", "redis-server")
		cmd.Env = []string{"PATH=" + dir}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
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
	installer(t, dir)
	program(t, filepath.Join(dir, "wrk"), "#!/bin/sh\n")
	for name, want := range map[string]struct{ stdout, stderr string }{
		"wrk":    {filepath.Join(dir, "wrk"), ""},
		"h2load": {"", "no h2load here; test/install h2load installs one"},
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

// Debian's redis-server is a link into redis-tools, which a system may have already:
// apt-get downloads such a package only if it is named, and to be installed again.
func TestInstall_RedisWhereItsToolsAreInstalled(t *testing.T) {
	dir := t.TempDir()
	installer(t, dir, "bash", "cat", "chmod", "id", "ln", "mkdir", "readlink", "rm", "sh", "tr")
	program(t, filepath.Join(dir, "apt-get"), `#!/usr/bin/env bash
case " $* " in *" install "*) ;; *) exit ;; esac
for word; do
	case $word in
	Dir::Cache::archives=*) archives=${word#*=} ;;
	redis-server) echo >"$archives/$word.deb" ;;
	redis-tools) case " $* " in *" --reinstall "*) echo >"$archives/$word.deb" ;; esac ;;
	esac
done
`)
	program(t, filepath.Join(dir, "dpkg-deb"), `#!/usr/bin/env bash
mkdir -p "$3/usr/bin"
case $2 in
*/redis-server.deb) ln -s redis-check-rdb "$3/usr/bin/redis-server" ;;
*/redis-tools.deb)
	printf '#!/bin/sh\necho Redis server v=7.0.15\n' >"$3/usr/bin/redis-check-rdb"
	chmod +x "$3/usr/bin/redis-check-rdb"
	;;
esac
`)
	cmd := exec.Command("bash", filepath.Join(dir, "install"), "redis-server")
	cmd.Env = []string{"PATH=" + dir}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if got, want := strings.TrimSpace(stdout.String()), filepath.Join(dir, ".cache", "bin", "redis-server"); got != want {
		t.Errorf("installed %q, want %q", got, want)
	}
}

// installer copies the script into the folder, and links there the programs that it
// needs before it installs anything, and these.
func installer(t *testing.T, dir string, programs ...string) {
	t.Helper()
	script, err := os.ReadFile("install")
	if err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(dir, "install"), string(script))
	for _, name := range append([]string{"dirname", "grep"}, programs...) {
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
