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
	packages int           // how many there will be; 0 for unknown
	limit    time.Duration // the most that tests may run; 0 for any
	quiet    time.Duration // the most time without a line; 0 for any

	began, spoke   time.Time
	ran            time.Duration // how long tests ran
	since          time.Time     // until when ran counts
	running        map[string]*suite
	builds         map[string]*strings.Builder // output of the compiler, by package
	ended          int
	passed, failed int
	skipped        int
}

// A suite is a package whose tests run.
type suite struct {
	output  strings.Builder
	failed  int
	running map[string]time.Time // tests, and since when
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
	case e.Test != "":
		r.test(now, s, e)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		r.suiteEnded(now, s, e)
	}
}

// suite is the package of that name, which runs from now on.
func (r *report) suite(name string) *suite {
	s := r.running[name]
	if s == nil {
		s = &suite{running: map[string]time.Time{}}
		r.running[name] = s
	}
	return s
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
	case "skip":
		r.skipped++
	default:
		return
	}
	delete(s.running, e.Test)
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
		if s.failed == 0 { // it was not built, or ended outside of any test
			r.failed++
		}
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
	place := fmt.Sprint(r.ended)
	if r.packages > 0 {
		place = fmt.Sprintf("%d of %d", r.ended, r.packages)
	}
	fmt.Fprintf(r.out, format+"  (%s, %s)\n", append(args, place, clock(now.Sub(r.began)))...)
	r.spoke = now
}

// clock is d as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// advance counts the time until now if tests ran in it.
func (r *report) advance(now time.Time) {
	if len(r.running) > 0 {
		r.ran += now.Sub(r.since)
	}
	r.since = now
}

// tick prints what runs if nothing was printed for long, and reports whether the
// tests may go on. When they may not, those that run have failed.
func (r *report) tick(now time.Time) bool {
	r.advance(now)
	if r.limit > 0 && r.ran > r.limit {
		slowest := r.slowest(now)
		r.failed += max(1, len(slowest))
		r.say(now, "the tests did not end within %s; still running: %s", r.limit, strings.Join(slowest, ", "))
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
		s, short := r.running[pkg], pkg[strings.LastIndexByte(pkg, '/')+1:]
		for test, since := range s.running {
			waits := slices.ContainsFunc(slices.Collect(maps.Keys(s.running)), func(other string) bool { return strings.HasPrefix(other, test+"/") })
			if !waits {
				all = append(all, one{short + "." + test, since})
			}
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

// broken says that the command itself failed.
func (r *report) broken(err error) {
	r.failed++
	fmt.Fprintln(r.out, "go test:", err)
}

// end prints the last line and returns the exit code.
func (r *report) end() int {
	skipped := ""
	if r.skipped > 0 {
		skipped = fmt.Sprintf(", %d skipped", r.skipped)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed%s\n", r.passed, r.failed, skipped)
	if r.failed > 0 {
		return 1
	}
	return 0
}
