package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// An event is one of test2json; see go doc test2json.
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string // of build-output and build-fail
	Elapsed                       float64
}

// A report is what is known of the tests so far. Time is an argument.
type report struct {
	out      io.Writer
	module   string        // left out of the names of packages
	packages int           // how many there will be; 0 for unknown
	limit    time.Duration // the most that tests may run without one that begins or ends; 0 for any
	quiet    time.Duration // the most time without a line; 0 for any

	began, spoke   time.Time
	stalled        time.Duration // how long tests ran since one began or ended
	since          time.Time     // until when stalled counts
	running        map[string]*suite
	builds         map[string]*strings.Builder // output of the compiler, by package
	ended          int
	passed, failed int
	skipped        int
	failures       []failure
	stopped        string // why the run is not complete, or empty
}

// A suite is a package whose tests run.
type suite struct {
	output  strings.Builder
	failed  int
	running map[string]time.Time        // tests, and since when
	said    map[string]*strings.Builder // output of tests that have not ended
}

func newReport(out io.Writer, packages int, now time.Time) *report {
	return &report{out: out, packages: packages, began: now, spoke: now, since: now,
		running: map[string]*suite{}, builds: map[string]*strings.Builder{}}
}

// event takes in one event.
func (r *report) event(now time.Time, e event) {
	r.advance(now)
	switch e.Action {
	case "build-output":
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = new(strings.Builder)
		}
		r.builds[e.ImportPath].WriteString(e.Output)
		return
	case "build-fail":
		return // the package that needs it fails as well
	case "start":
		r.suite(e.Package)
		return
	}
	s := r.suite(e.Package)
	switch {
	case e.Action == "output":
		s.output.WriteString(e.Output)
		if e.Test != "" {
			s.of(e.Test).WriteString(e.Output)
		}
		return
	case e.Test != "":
		r.test(now, s, e)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		r.suiteEnded(now, s, e)
	}
	r.stalled = 0
}

// suite is the package of that name, which runs from now on.
func (r *report) suite(name string) *suite {
	s := r.running[name]
	if s == nil {
		s = &suite{running: map[string]time.Time{}, said: map[string]*strings.Builder{}}
		r.running[name] = s
	}
	return s
}

// of is the output of a test so far.
func (s *suite) of(test string) *strings.Builder {
	if s.said[test] == nil {
		s.said[test] = new(strings.Builder)
	}
	return s.said[test]
}

func (r *report) test(now time.Time, s *suite, e event) {
	switch e.Action {
	case "run", "cont":
		s.running[e.Test] = now
		return
	case "pause":
		delete(s.running, e.Test)
		return
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		s.failed++
		r.testFailed(e.Package, e.Test, s.of(e.Test).String())
	case "skip":
		r.skipped++
	default:
		return
	}
	delete(s.running, e.Test)
	delete(s.said, e.Test)
}

// suiteEnded prints the line of a package, and what it wrote if it failed.
func (r *report) suiteEnded(now time.Time, s *suite, e event) {
	delete(r.running, e.Package)
	r.ended++
	verdict := "ok  "
	switch e.Action {
	case "skip":
		verdict = "?   "
	case "fail":
		verdict = "FAIL"
		r.suiteFailed(s, e)
		if build := r.builds[e.FailedBuild]; build != nil {
			fmt.Fprint(r.out, build.String())
		}
		for line := range strings.Lines(s.output.String()) {
			if !strings.HasPrefix(line, "=== ") {
				fmt.Fprint(r.out, line)
			}
		}
	}
	r.say(now, "%s %s %.1fs", verdict, e.Package, e.Elapsed)
}

// say prints a line with the place in the whole and the time.
func (r *report) say(now time.Time, format string, args ...any) {
	fmt.Fprintf(r.out, format+"  (%s)\n", append(args, r.place(now))...)
	r.spoke = now
}

// place is how many packages have ended, and when.
func (r *report) place(now time.Time) string {
	ended := fmt.Sprint(r.ended)
	if r.packages > 0 {
		ended = fmt.Sprintf("%d of %d", r.ended, r.packages)
	}
	return ended + ", " + clock(now.Sub(r.began))
}

// clock is d as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// advance counts the time until now if tests ran in it.
func (r *report) advance(now time.Time) {
	if len(r.running) > 0 {
		r.stalled += now.Sub(r.since)
	}
	r.since = now
}

// tick prints what runs if nothing was printed for long, and reports whether the
// tests may go on.
func (r *report) tick(now time.Time) bool {
	r.advance(now)
	if r.limit > 0 && r.stalled > r.limit {
		r.stopped = fmt.Sprintf("no test began or ended for %s; if the machine is only busy, set WEIR_TEST_LIMIT to more than %.0f seconds", r.limit, r.limit.Seconds())
		r.say(now, "%s; still running: %s", r.stopped, strings.Join(r.slowest(now), ", "))
		return false
	}
	if r.quiet > 0 && now.Sub(r.spoke) >= r.quiet {
		what := "building"
		if slowest := r.slowest(now); len(slowest) > 0 {
			what = "running: " + strings.Join(slowest[:min(4, len(slowest))], ", ")
		}
		r.say(now, "... %s", what)
	}
	return true
}

// slowest names the tests that run, longest first, without those that only wait
// for their parts; or the package, if none of its tests runs.
func (r *report) slowest(now time.Time) (names []string) {
	type one struct {
		name  string
		since time.Time
	}
	var all []one
	for _, pkg := range slices.Sorted(maps.Keys(r.running)) {
		s, short := r.running[pkg], r.short(pkg)
		for _, test := range r.leaves(s) {
			all = append(all, one{short + "." + test, s.running[test]})
		}
		if len(s.running) == 0 {
			all = append(all, one{short, now})
		}
	}
	slices.SortFunc(all, func(a, b one) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	for _, o := range all {
		names = append(names, fmt.Sprintf("%s (%s)", o.name, clock(now.Sub(o.since))))
	}
	return names
}

// leaves are the tests that run, without those that only wait for their parts.
func (r *report) leaves(s *suite) (tests []string) {
	all := slices.Sorted(maps.Keys(s.running))
	for _, test := range all {
		if !slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			tests = append(tests, test)
		}
	}
	return tests
}

// end prints what failed and the last line, which counts tests only if all have run.
// It returns the exit code.
func (r *report) end(now time.Time) int {
	if r.stopped == "" && r.ended < r.packages {
		r.stopped = "go test ended"
	}
	r.tellFailures()
	counts := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		counts += fmt.Sprintf(", %d skipped", r.skipped)
	}
	if r.stopped != "" {
		fmt.Fprintf(r.out, "NOT COMPLETE: %s; until then %s  (%s)\n", r.stopped, counts, r.place(now))
		return 1
	}
	fmt.Fprintln(r.out, counts)
	if r.failed > 0 {
		return 1
	}
	return 0
}
