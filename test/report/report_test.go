package main

import (
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
	if code := r.end(at(68)); code != 1 || !strings.HasSuffix(out.String(), "FAIL weir/lock.TestB: got 1, want 2\n1 passed, 1 failed\n") {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// Only time in which tests run and none begins or ends counts; those that run at the end
// are named, and have failed.
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
		newEvent(609, "run", "weir/test", "TestSlow/part"),
		newEvent(610, "run", "weir/test", "TestParked"),
		newEvent(610, "pause", "weir/test", "TestParked"),
		func(r *report) {
			r.event(at(615), event{Action: "output", Package: "weir/test", Test: "TestSlow/part", Output: "output is no progress\n"})
		})
	if !r.tick(at(620)) {
		t.Fatal("ended at the limit, not after it")
	}
	if r.tick(at(621)) {
		t.Fatal("goes on after the limit")
	}
	r.killed()
	if code := r.end(at(622)); code != 1 {
		t.Errorf("exit code %d", code)
	}
	const want = `no test began or ended for 10s; if the machine is only busy, set WEIR_TEST_LIMIT to more than 10 seconds; still running: weir/test.TestSlow/part (0:12)  (0 of 9, 10:21)
FAIL weir/test.TestSlow/part: was still running
NOT COMPLETE: no test began or ended for 10s; if the machine is only busy, set WEIR_TEST_LIMIT to more than 10 seconds; until then 0 passed, 1 failed  (0 of 9, 10:22)
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
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
	want := "... building  (0, 0:30)\n... running: weir/lock.TestA (0:30)  (0, 1:01)\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

// A package that is not built fails once, with the compiler's words.
func TestReport_CountsWhatIsNotBuilt(t *testing.T) {
	out := new(strings.Builder)
	r := newReport(out, 1, at(0))
	r.event(at(1), event{Action: "build-output", ImportPath: "weir/lock [weir/lock.test]", Output: "# weir/lock\nlock.go:3: undefined: x\n"})
	r.event(at(1), event{Action: "build-fail", ImportPath: "weir/lock [weir/lock.test]"})
	r.event(at(1), event{Action: "fail", Package: "weir/lock", FailedBuild: "weir/lock [weir/lock.test]"})
	const want = "# weir/lock\nlock.go:3: undefined: x\nFAIL weir/lock 0.0s  (1 of 1, 0:01)\nFAIL weir/lock: not built: lock.go:3: undefined: x\n0 passed, 1 failed\n"
	if code := r.end(at(2)); code != 1 || out.String() != want {
		t.Errorf("exit code %d after\n%s", code, out)
	}
}

// How many packages are compiled is said now and then, and what the go command says
// beside their names is passed on.
func TestBuild_SaysHowFarItIs(t *testing.T) {
	out := new(strings.Builder)
	b := newBuild(out, 4, at(0))
	b.quiet = 30 * time.Second
	for _, line := range []string{"net/http\n", "\n", "example.org/x\n", "example.org/x [example.org/x.test]\n", "# example.org/x\n", "x.go:3: undefined: y\n"} {
		b.line(line)
	}
	b.tick(at(29))
	b.tick(at(90))
	b.tick(at(91))
	const want = "# example.org/x\nx.go:3: undefined: y\n... still compiling: 3 of 4 packages  (1:30)\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

// A real go command: its packages are counted, and its exit code is that of the run.
func TestBuild_OfARealRun(t *testing.T) {
	out := new(strings.Builder)
	b := newBuild(out, 2, time.Now())
	// -a compiles also what is in the cache.
	if code := b.run(t.Context(), []string{"go", "build", "-C", module(t), "-a", "-v", "internal/goarch", "internal/goos"}); code != 0 || b.compiled != 2 || out.Len() > 0 {
		t.Errorf("exit code %d, %d compiled\n%s", code, b.compiled, out)
	}
	if code := b.run(t.Context(), []string{"go", "build", "no-such-package"}); code == 0 || !strings.Contains(out.String(), "no-such-package") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
