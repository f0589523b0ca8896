package test

import (
	"bufio"
	"go/ast"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// What ./test/run says last is what was run, and only packages that need programs of
// others have them looked for.
func TestRun_SaysWhatItRan(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-short -run TestSplit ./test/report":    "1 passed, 0 failed",
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
	for _, step := range []string{"== go build", "?   "} { // ./test/await has no tests
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		run := exec.Command("./run", "-short", "-count=100", "./limiter", "./test/await")
		run.Stdout, run.Stderr = w, w
		run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
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
	text, err := os.ReadFile("run")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	patterns := regexp.MustCompile(`(?m)^\tskip\+?='\|?(.*)'$`).FindAllSubmatch(text, -1)
	if len(patterns) != 2 {
		t.Fatalf("%d lines say what a short run leaves out, want 2", len(patterns))
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
