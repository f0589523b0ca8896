package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at is so many seconds after the start.
func at(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }

// reportOf gives the events to a report at their seconds and returns what it printed.
func reportOf(r *report, out *strings.Builder, events ...func(*report)) string {
	for _, e := range events {
		e(r)
	}
	return out.String()
}

func newEvent(second int, action, pkg, test string) func(*report) {
	return func(r *report) { r.event(at(second), event{Action: action, Package: pkg, Test: test}) }
}

func TestReport_TellsOfEachPackageWithItsPlaceAndTime(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 2, at(0))
	got := reportOf(r, out,
		newEvent(5, "start", "weir/limiter", ""),
		newEvent(5, "run", "weir/limiter", "TestA"),
		newEvent(6, "pass", "weir/limiter", "TestA"),
		func(r *report) { r.event(at(65), event{Action: "pass", Package: "weir/limiter", Elapsed: 60}) },
		func(r *report) {
			r.event(at(66), event{Action: "output", Package: "weir/lock", Test: "TestB", Output: "=== RUN TestB\n"})
		},
		func(r *report) {
			r.event(at(66), event{Action: "output", Package: "weir/lock", Test: "TestB", Output: "got 1, want 2\n"})
		},
		newEvent(66, "fail", "weir/lock", "TestB"),
		newEvent(67, "fail", "weir/lock", ""))
	want := "ok   weir/limiter 60.0s  (1 of 2, 1:05)\ngot 1, want 2\nFAIL weir/lock 0.0s  (2 of 2, 1:07)\n"
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if code := r.end(); code != 1 || !strings.HasSuffix(out.String(), "1 passed, 1 failed\n") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// Only time in which tests run counts; those that run at the end are named, and
// have failed.
func TestReport_LimitCountsNoBuildingAndNamesWhatRuns(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 9, at(0))
	r.limit = 10 * time.Second
	if !r.tick(at(500)) {
		t.Fatal("building counts")
	}
	reportOf(r, out,
		newEvent(600, "start", "weir/test", ""),
		newEvent(600, "run", "weir/test", "TestSlow"),
		newEvent(601, "run", "weir/test", "TestSlow/part"),
		newEvent(602, "run", "weir/test", "TestParked"),
		newEvent(602, "pause", "weir/test", "TestParked"))
	if !r.tick(at(610)) {
		t.Fatal("ended at the limit, not after it")
	}
	if r.tick(at(611)) {
		t.Fatal("goes on after the limit")
	}
	want := "the tests did not end within 10s; still running: test.TestSlow/part (0:10)  (0 of 9, 10:11)\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("printed\n%s\nwant at its end\n%s", out, want)
	}
	if code := r.end(); code != 1 || !strings.HasSuffix(out.String(), "0 passed, 1 failed\n") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

func TestReport_IsNeverSilentForLong(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 0, at(0))
	r.quiet = 30 * time.Second
	r.tick(at(29))
	if out.Len() > 0 {
		t.Errorf("printed %s", out)
	}
	r.tick(at(30))
	r.event(at(31), event{Action: "start", Package: "weir/lock"})
	r.event(at(31), event{Action: "run", Package: "weir/lock", Test: "TestA"})
	r.tick(at(61))
	want := "... building  (0, 0:30)\n... running: lock.TestA (0:30)  (0, 1:01)\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

// A package that is not built fails once, with the compiler's words.
func TestReport_CountsWhatIsNotBuilt(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, at(0))
	r.event(at(1), event{Action: "build-output", ImportPath: "weir/lock [weir/lock.test]", Output: "lock.go:3: undefined: x\n"})
	r.event(at(1), event{Action: "build-fail", ImportPath: "weir/lock [weir/lock.test]"})
	r.event(at(1), event{Action: "fail", Package: "weir/lock", FailedBuild: "weir/lock [weir/lock.test]"})
	if code := r.end(); code != 1 || out.String() != "lock.go:3: undefined: x\nFAIL weir/lock 0.0s  (1 of 1, 0:01)\n0 passed, 1 failed\n" {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

func TestSplit(t *testing.T) {
	for in, want := range map[string]string{
		"go test":          "[[go test]]",
		"go test -- go -C": "[[go test] [go -C]]",
	} {
		if got := fmt.Sprint(split(strings.Fields(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// A real go test: what it counts is what there is, and what hangs is ended with all
// that it has started.
func TestReport_OfARealRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/x\n\ngo 1.26\n")
	write("x_test.go", `package x
import "testing"
func TestPasses(t *testing.T) { t.Run("part", func(t *testing.T) {}) }
func TestFails(t *testing.T) { t.Error("as it should") }
func TestSkips(t *testing.T) { t.SkipNow() }
func TestHangs(t *testing.T) { if !testing.Short() { select {} } }
`)
	out := new(strings.Builder)
	r := newReport(out, 1, time.Now())
	if !r.run(t.Context(), []string{"go", "test", "-C", dir, "-short", "-json", "./..."}) {
		t.Error("another command may not follow")
	}
	if r.passed != 3 || r.failed != 1 || r.skipped != 1 || !strings.Contains(out.String(), "as it should") {
		t.Errorf("%d passed, %d failed, %d skipped\n%s", r.passed, r.failed, r.skipped, out)
	}
	r = newReport(out, 1, time.Now())
	r.limit = time.Millisecond
	if r.run(t.Context(), []string{"go", "test", "-C", dir, "-run", "Hangs", "-json", "./..."}) {
		t.Error("another command may follow one that hung")
	}
	if !strings.Contains(out.String(), "x.TestHangs") || r.end() != 1 {
		t.Errorf("printed\n%s", out)
	}
}
