package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module whose tests pass, fail, are skipped, and hang if there is no
// -short, and returns where it is.
func module(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/x\n\ngo 1.26\n",
		"x_test.go": `package x
import "testing"
func TestPasses(t *testing.T) { t.Run("part", func(t *testing.T) {}) }
func TestFails(t *testing.T) { t.Error("as it should") }
func TestSkips(t *testing.T) { t.SkipNow() }
func TestHangs(t *testing.T) { if !testing.Short() { select {} } }
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lastLine is the last line of what was printed.
func lastLine(out *strings.Builder) string {
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1]
}

// What is counted of a real go test is what there is.
func TestReport_OfARealRun(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, time.Now())
	r.run(t.Context(), []string{"go", "test", "-C", module(t), "-short", "-json", "./..."})
	if code := r.end(time.Now()); code != 1 || lastLine(out) != "3 passed, 1 failed, 1 skipped" || !strings.Contains(out.String(), "\nFAIL example.org/x.TestFails: x_test.go:4: as it should\n") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// What hangs is ended with all that it has started, and tells where it was.
func TestReport_EndsWhatHangs(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, time.Now())
	r.limit = 500 * time.Millisecond // by then the test stands where it hangs
	r.run(t.Context(), []string{"go", "test", "-C", module(t), "-run", "Hangs", "-json", "./..."})
	if code := r.end(time.Now()); code != 1 || !strings.HasPrefix(lastLine(out), "NOT COMPLETE: no test began or ended for 500ms") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
	for _, want := range []string{"x_test.go:6 ", "\nFAIL example.org/x.TestHangs: hangs; its goroutines are above\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// A run that somebody interrupts does not end as one that is complete, although nothing
// has failed.
func TestReport_Interrupted(t *testing.T) {
	out := &watched{hangs: make(chan bool)}
	r := newReport(out, 1, time.Now())
	r.quiet = time.Nanosecond // what runs is printed every second
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-out.hangs
		interrupt()
	}()
	r.run(ctx, []string{"go", "test", "-C", module(t), "-run", "Hangs|Passes", "-json", "./..."})
	code := r.end(time.Now())
	want := "NOT COMPLETE: interrupted; until then 2 passed, 0 failed  (0 of 1, "
	if code != 1 || !strings.HasPrefix(lastLine(&out.Builder), want) || !strings.Contains(out.String(), "interrupted while running: example.org/x.TestHangs (") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// watched says when TestHangs runs.
type watched struct {
	strings.Builder
	hangs chan bool
	said  bool
}

func (w *watched) Write(p []byte) (int, error) {
	if !w.said && strings.Contains(string(p), "TestHangs") {
		w.said = true
		close(w.hangs)
	}
	return w.Builder.Write(p)
}

// A go command that does not begin, or that ends before its packages have, is no
// complete run either.
func TestReport_GoTestFails(t *testing.T) {
	for command, want := range map[string]string{
		"no-such-program": `FAIL go test: exec: "no-such-program": executable file not found in $PATH`,
		"false":           "FAIL go test: exit status 1",
	} {
		out := new(strings.Builder)
		r := newReport(out, 1, time.Now())
		r.run(t.Context(), []string{command})
		if code := r.end(time.Now()); code != 1 || !strings.HasPrefix(out.String(), want+"\n") || !strings.HasPrefix(lastLine(out), "NOT COMPLETE: go test ended; ") {
			t.Errorf("exit code %d after\n%s", code, out)
		}
	}
}

var record = flag.Bool("record", false, "write testdata/*.want again")

// The last lines of a failed run name what failed and why, whatever stands above: here,
// what go test printed for tests that failed, panicked, hung, raced, ended the process, and
// were not built.
func TestFailure_LastLines(t *testing.T) {
	for _, name := range []string{"failed", "raced"} {
		out := new(strings.Builder)
		r := newReport(out, 0, at(0))
		r.module = "github.com/weir-proxy/weir"
		events, err := os.Open("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		for lines := bufio.NewScanner(events); lines.Scan(); {
			r.line(at(1), lines.Bytes())
		}
		out.Reset()
		if code := r.end(at(2)); code != 1 {
			t.Errorf("%s: exit code %d", name, code)
		}
		file := "testdata/" + name + ".want"
		if *record {
			if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || out.String() != string(want) {
			t.Errorf("%s, %v: printed\n%s\nwant\n%s", name, err, out, want)
		}
	}
}

// However much fails, what is said of it at the end is ten lines.
func TestFailure_TenLines(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, at(0))
	for i := range 30 {
		test := fmt.Sprint("Test", i)
		r.event(at(1), event{Action: "output", Package: "weir/lock", Test: test, Output: "    a.go:1: " + strings.Repeat("ä", 2*maxReason) + "\n"})
		newEvent(1, "fail", "weir/lock", test)(r)
	}
	newEvent(1, "fail", "weir/lock", "")(r)
	out.Reset()
	r.end(at(1))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 10 || lines[8] != "... and 22 more, above" || lines[9] != "0 passed, 30 failed" {
		t.Errorf("%d lines:\n%s", len(lines), out)
	}
	if want := "FAIL weir/lock.Test0: a.go:1: " + strings.Repeat("ä", maxReason-len("a.go:1: ")) + "..."; lines[0] != want {
		t.Errorf("got  %s\nwant %s", lines[0], want)
	}
}

// Of what a test says, the line that compares is the reason.
func TestReason(t *testing.T) {
	for output, want := range map[string]string{
		"    a_test.go:1: 3 rounds\n    a_test.go:2: got 1, want 2\n":                                  "a_test.go:2: got 1, want 2",
		"    a_test.go:1: EOF\n    process.go:9: weir said:\n        want\n":                           "a_test.go:1: EOF",
		"    a_test.go:1: fine\nfatal error: all goroutines are asleep\n\nmore\n":                      "fatal error: all goroutines are asleep",
		"        {\"level\":\"error\",\"message\":\"panic: want\"}\n":                                  "",
		"panic: test timed out after 3s\n\trunning tests:\n\t\tTestA (3s)\n\t\tTestA/b (2s)\n\nmore\n": "panic: test timed out after 3s; running: TestA (3s), TestA/b (2s)",
		"panic: test timed out after 3s":                                                               "panic: test timed out after 3s",
	} {
		if got := reason(output); got != want {
			t.Errorf("got %q, want %q of\n%s", got, want, output)
		}
	}
}
