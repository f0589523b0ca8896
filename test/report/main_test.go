package main

import (
	"context"
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
	if !r.run(t.Context(), []string{"go", "test", "-C", module(t), "-short", "-json", "./..."}) {
		t.Error("another command may not follow")
	}
	if code := r.end(time.Now()); code != 1 || lastLine(out) != "3 passed, 1 failed, 1 skipped" || !strings.Contains(out.String(), "\nFAIL example.org/x.TestFails: x_test.go:4: as it should\n") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// What hangs is ended with all that it has started, and tells where it was.
func TestReport_EndsWhatHangs(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, time.Now())
	r.limit = time.Millisecond
	if r.run(t.Context(), []string{"go", "test", "-C", module(t), "-run", "Hangs", "-json", "./..."}) {
		t.Error("another command may follow one that hung")
	}
	if code := r.end(time.Now()); code != 1 || !strings.HasPrefix(lastLine(out), "NOT COMPLETE: no test began or ended for 1ms") {
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
	if r.run(ctx, []string{"go", "test", "-C", module(t), "-run", "Hangs|Passes", "-json", "./..."}) {
		t.Error("another command may follow")
	}
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
