package test

import (
	"bufio"
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/filetest"
)

// What ./test/run says last is what was run, and only packages that need programs of
// others have them looked for.
func TestRun_SaysWhatItRan(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-short -run TestReason ./test/report":   "1 passed, 0 failed",
		"-short -run ^TestNobody$ ./test/report": "0 passed, 0 failed",
	} {
		out, err := exec.Command("./run", strings.Fields(args)...).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || lines[len(lines)-1] != want {
			t.Errorf("./test/run %s: %v\n%s", args, err, out)
		}
		if strings.Contains(string(out), "install ") || !strings.Contains(string(out), "(1 of 1, ") {
			t.Errorf("./test/run %s installs, or does not say how far it is:\n%s", args, out)
		}
	}
}

// A run that somebody interrupts, at whatever step, does not end as one that is complete,
// and what it has started ends with it.
func TestRun_Interrupted(t *testing.T) {
	t.Parallel()
	heard := make(chan os.Signal, 1) // what is heard here is not ignored there, as it is by all that a shell runs in the background
	signal.Notify(heard, os.Interrupt)
	defer signal.Stop(heard)
	for _, step := range []string{"== go build", "?   "} { // ./test/await has no tests
		r, w, err := os.Pipe()
		check(t, err)
		defer r.Close()
		run := exec.Command("./run", "-short", "-count=100", "./limiter", "./test/await")
		run.Stdout, run.Stderr = w, w
		run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does
		check(t, run.Start())
		w.Close()
		last, said := "", ""
		for lines := bufio.NewScanner(r); lines.Scan(); said += last + "\n" { // to the end of all that write
			if last = lines.Text(); strings.HasPrefix(last, step) {
				if err := syscall.Kill(-run.Process.Pid, syscall.SIGINT); err != nil {
					t.Error(err)
				}
			}
		}
		if err := run.Wait(); err == nil || !strings.HasPrefix(last, "NOT COMPLETE: interrupted") {
			t.Errorf("interrupted at %s: %v\n%s", step, err, said)
		}
	}
}

// Each name that a short run leaves out is that of a test: one that was given another
// name would be run again, and nobody would see why runs take longer.
func TestRun_LeavesOutTestsThatExist(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "run")
	var names []string
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	patterns := regexp.MustCompile(`(?m)^\tskip\+?='\|?(.*)'$`).FindAllSubmatch(text, -1)
	if len(patterns) != 5 {
		t.Fatalf("%d lines say what a short run leaves out, want 5", len(patterns))
	}
	var all []string
	for _, p := range patterns {
		all = append(all, alternatives(string(p[1]))...)
	}
	for _, one := range all {
		if top, _, _ := strings.Cut(one, "/"); !regexp.MustCompile(top).MatchString(strings.Join(names, "\n")) {
			t.Errorf("no test is called %s", one)
		}
	}
}

// alternatives are what a pattern made of groups and bars can be, each as a pattern of
// one line of several.
func alternatives(pattern string) (all []string) {
	group := regexp.MustCompile(`\(([^()]*)\)`).FindStringSubmatchIndex(pattern)
	if group == nil {
		for one := range strings.SplitSeq(pattern, "|") {
			all = append(all, "(?m)"+one)
		}
		return all
	}
	// The part of the pattern that the group stands in reaches from bar to bar.
	begin := strings.LastIndexAny(pattern[:group[0]], "|(") + 1
	end := len(pattern)
	if i := strings.IndexAny(pattern[group[1]:], "|)"); i >= 0 {
		end = group[1] + i
	}
	var parts []string
	for inner := range strings.SplitSeq(pattern[group[2]:group[3]], "|") {
		parts = append(parts, pattern[begin:group[0]]+inner+pattern[group[1]:end])
	}
	return alternatives(pattern[:begin] + strings.Join(parts, "|") + pattern[end:])
}

// Every suite that has a script of its own is part of the proof.
func TestProof_NamesEverySuite(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "proof")
	suites := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".cache" {
			return filepath.SkipDir
		}
		if d.Name() != "run" || d.IsDir() {
			return nil
		}
		suites++
		if !strings.Contains(string(text), "| ./test/"+filepath.ToSlash(path)) {
			t.Errorf("test/%s is not part of test/proof", path)
		}
		return nil
	})
	if err != nil || suites < 8 {
		t.Errorf("%d suites found (%v)", suites, err)
	}
}

// A suite is green, red, or not here; a red one is the exit code.
func TestProof_Table(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "proof")
	begin, rest, _ := strings.Cut(string(text), "suites='")
	_, end, found := strings.Cut(rest, "'\n")
	if !found {
		t.Fatal("test/proof has no list of suites")
	}
	dir := t.TempDir()
	script := begin + "suites='good | it holds | sh | true\nbad | it does not | sh | false\nlost | nobody knows | no-such-program | true\nfar | elsewhere | sh | eval echo no network; exit 77'\n" + end
	write(t, filepath.Join(dir, "test", "proof"), script)
	write(t, filepath.Join(dir, "test", "install"), "echo redis-server")
	for args, want := range map[string][]string{
		"":          {"exit 1", "| good | it holds | green | 0:0", "| bad | it does not | **red**, test/.cache/proof/bad.log |", "| lost | nobody knows | not here: no no-such-program | |", "| far | elsewhere | not here: no network | 0:0"},
		"good lost": {"exit 0", "| good | it holds | green |", "| lost |"},
		"--names":   {"exit 0", "good\nbad\nlost\nfar\n"},
		"else":      {"exit 2", "there is no suite else; the suites are: good bad lost far"},
	} {
		cmd := exec.Command("bash", "-c", "bash test/proof "+args+" 2>&1; echo exit $?")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		check(t, err)
		for _, line := range want {
			if !strings.Contains(string(out), line) {
				t.Errorf("test/proof %s lacks %q:\n%s", args, line, out)
			}
		}
		if args == "good lost" && strings.Contains(string(out), "bad") {
			t.Errorf("a suite that was not asked for runs:\n%s", out)
		}
	}
}

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
	script := filetest.Read(t, "install")
	program(t, filepath.Join(dir, "install"), string(script))
	for _, name := range append([]string{"dirname", "grep"}, programs...) {
		path, err := exec.LookPath(name)
		check(t, err)
		check(t, os.Symlink(path, filepath.Join(dir, name)))
	}
}

func program(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o755))
}
