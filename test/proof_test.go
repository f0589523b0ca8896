package test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every suite that has a script of its own is part of the proof.
func TestProof_NamesEverySuite(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("proof")
	if err != nil {
		t.Fatal(err)
	}
	suites := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
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
	text, err := os.ReadFile("proof")
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, _ := strings.Cut(string(text), "suites='")
	_, end, found := strings.Cut(rest, "'\n")
	if !found {
		t.Fatal("test/proof has no list of suites")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "test"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := begin + "suites='good | it holds | sh | true\nbad | it does not | sh | false\nlost | nobody knows | no-such-program | true\nfar | elsewhere | sh | eval echo no network; exit 77'\n" + end
	write(t, filepath.Join(dir, "test", "proof"), script)
	for args, want := range map[string][]string{
		"":          {"exit 1", "| good | it holds | green | 0:0", "| bad | it does not | **red**, test/.cache/proof/bad.log |", "| lost | nobody knows | not here: no no-such-program | |", "| far | elsewhere | not here: no network | 0:0"},
		"good lost": {"exit 0", "| good | it holds | green |", "| lost |"},
		"--names":   {"exit 0", "good\nbad\nlost\nfar\n"},
		"else":      {"exit 2", "there is no suite else; the suites are: good bad lost far"},
	} {
		cmd := exec.Command("bash", "-c", "bash test/proof "+args+" 2>&1; echo exit $?")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
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
