package main

import (
	"strings"
	"testing"
	"time"
)

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
