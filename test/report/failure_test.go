package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

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
