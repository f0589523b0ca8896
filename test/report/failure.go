package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A failure is a test or package that failed, and why, as far as one line can say it.
type failure struct{ name, why string }

const (
	// maxFailures is how many failures are named at the end. With the line that counts
	// the others and the last line, they are ten lines.
	maxFailures = 8
	// maxReason is the most letters of a reason.
	maxReason = 200
)

var (
	// said is what a test says by its methods: t.Error, t.Fatal, t.Log.
	said = regexp.MustCompile(`^ {4}([\w./-]+\.go:\d+: .*)`)
	// compares is what failures say, and remarks rarely.
	compares = regexp.MustCompile(`(?i)\b(want|wanted|not within|got|expected|no such|refused|timeout|race detected)\b`)
	// crash is how the runtime says that it ends the process.
	crash = regexp.MustCompile(`^(panic: |fatal error: |SIGQUIT: )`)
	// raceAccess and frame are of a report of the race detector.
	raceAccess = regexp.MustCompile(`^(?:Previous )?([Rr]ead|[Ww]rite) at 0x`)
	frame      = regexp.MustCompile(`^ {6}(?:.*/)?([^/]+\.go:\d+) `)
)

// crashed is how output tells of the end of its process, or empty if it does not.
func crashed(output string) string {
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		switch {
		case !crash.MatchString(line):
		case strings.HasPrefix(line, "SIGQUIT: "):
			return "hangs; its goroutines are above"
		case strings.Contains(line, "test timed out") && i+2 < len(lines):
			var tests []string
			for _, test := range lines[i+2:] {
				if !strings.HasPrefix(test, "\t\t") {
					break
				}
				tests = append(tests, strings.TrimSpace(test))
			}
			return fmt.Sprintf("%s; running: %s", line, strings.Join(tests, ", "))
		default:
			return line
		}
	}
	return ""
}

// raced is where the first data race of output is, or empty if there is none.
func raced(output string) string {
	_, output, found := strings.Cut(output, "WARNING: DATA RACE\n")
	if !found {
		return ""
	}
	var accesses []string
	access := ""
	for line := range strings.Lines(output) {
		if m := raceAccess.FindStringSubmatch(line); m != nil {
			access = strings.ToLower(m[1])
		} else if m := frame.FindStringSubmatch(line); m != nil && access != "" {
			accesses = append(accesses, access+" at "+m[1])
			access = ""
		}
	}
	return "data race: " + strings.Join(accesses, ", ")
}

// reason is the line of a test's output that says best why it failed, or empty if none
// does.
func reason(output string) string {
	if why := crashed(output); why != "" {
		return why
	}
	if why := raced(output); why != "" {
		return why
	}
	first := ""
	for line := range strings.Lines(output) {
		m := said.FindStringSubmatch(line)
		switch {
		case m == nil:
		case compares.MatchString(m[1]):
			return m[1]
		case first == "":
			first = m[1]
		}
	}
	return first
}

// lastWord is the last line of output that go test has not added.
func lastWord(output string) string {
	lines := strings.Split(output, "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "FAIL") && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return line
		}
	}
	return ""
}

// testFailed notes that a test failed, unless that is only because its parts did.
func (r *report) testFailed(pkg, test string, output string) {
	name, why := r.short(pkg)+"."+test, reason(output)
	if why == "" && slices.ContainsFunc(r.failures, func(f failure) bool { return strings.HasPrefix(f.name, name+"/") }) {
		return
	}
	r.note(name, why, lastWord(output))
}

// suiteFailed notes why a package failed beside its failed tests: it was not built, or
// its process ended during a test. It counts these.
func (r *report) suiteFailed(s *suite, e event) {
	name, crashing := r.short(e.Package), ""
	for _, test := range slices.Sorted(maps.Keys(s.running)) {
		if crashed(s.of(test).String()) != "" {
			crashing = test
		}
	}
	switch {
	case r.builds[e.FailedBuild] != nil:
		_, problem, _ := strings.Cut(r.builds[e.FailedBuild].String(), "\n") // after the line that names the package
		problem, _, _ = strings.Cut(problem, "\n")
		r.note(name, "not built: "+problem)
	case crashing != "":
		r.note(name+"."+crashing, crashed(s.of(crashing).String()))
	case len(s.running) > 0:
		for _, test := range r.leaves(s) {
			r.note(name+"."+test, strings.TrimSuffix("ended the process: "+lastWord(s.of(test).String()), ": "))
		}
	case s.failed == 0:
		r.note(name, reason(s.output.String()), lastWord(s.output.String()))
	default:
		return
	}
	r.failed++
}

// note adds a failure with the first reason that there is.
func (r *report) note(name string, whys ...string) {
	why := "it does not say why"
	if i := slices.IndexFunc(whys, func(w string) bool { return w != "" }); i >= 0 {
		why = whys[i]
	}
	if letters := []rune(why); len(letters) > maxReason {
		why = string(letters[:maxReason]) + "..."
	}
	r.failures = append(r.failures, failure{name, why})
}

// short is the name of a package within its module.
func (r *report) short(pkg string) string { return strings.TrimPrefix(pkg, r.module+"/") }

// tellFailures prints what failed, and why.
func (r *report) tellFailures() {
	for _, f := range r.failures[:min(len(r.failures), maxFailures)] {
		fmt.Fprintf(r.out, "FAIL %s: %s\n", f.name, f.why)
	}
	if more := len(r.failures) - maxFailures; more > 0 {
		fmt.Fprintf(r.out, "... and %d more, above\n", more)
	}
}

// killed notes that the tests that still run were ended.
func (r *report) killed() {
	for _, pkg := range slices.Sorted(maps.Keys(r.running)) {
		tests := r.leaves(r.running[pkg])
		for _, test := range tests {
			r.note(r.short(pkg)+"."+test, "was still running")
		}
		if len(tests) == 0 {
			r.note(r.short(pkg), "was still running, but none of its tests")
		}
		r.failed += max(1, len(tests))
	}
}

// interrupted notes that somebody ended the run. What was running has not failed.
func (r *report) interrupted(now time.Time) {
	r.stopped = "interrupted"
	if slowest := r.slowest(now); len(slowest) > 0 {
		r.say(now, "interrupted while running: %s", strings.Join(slowest, ", "))
	}
}

// broken notes that the go command itself failed.
func (r *report) broken(err error) {
	r.failed++
	r.note("go test", err.Error())
}
