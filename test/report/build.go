package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// named is a line in which the go command names a package that it has begun to compile.
var named = regexp.MustCompile(`^[^\s:]+( \[[^\s:]+\])?$`)

// A build is what is known of a compilation so far. Time is an argument.
type build struct {
	out      io.Writer
	packages int           // how many are compiled
	quiet    time.Duration // the most time without a line; 0 for any

	began, spoke time.Time
	compiled     int
}

func newBuild(out io.Writer, packages int, now time.Time) *build {
	return &build{out: out, packages: packages, began: now, spoke: now}
}

// run runs command and returns its exit code.
func (b *build) run(ctx context.Context, command []string) int {
	p, err := start(command, nil)
	if err != nil {
		fmt.Fprintln(b.out, err)
		return 1
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				_ = p.cmd.Wait() // its exit code is returned
				return p.cmd.ProcessState.ExitCode()
			}
			b.line(string(line))
		case now := <-tick.C:
			b.tick(now)
		case <-ctx.Done():
			p.kill()
			b.say(time.Now(), "NOT COMPLETE: interrupted while compiling, before any test ran;")
			return 1
		}
	}
}

// line takes in a line of the go command: the name of a package, or something to pass
// on.
func (b *build) line(line string) {
	switch line = strings.TrimRight(line, "\n"); {
	case line == "":
	case named.MatchString(line):
		b.compiled++
	default:
		fmt.Fprintln(b.out, line)
	}
}

// tick says how far the compiler is, if nothing was said for long.
func (b *build) tick(now time.Time) {
	if b.quiet > 0 && now.Sub(b.spoke) >= b.quiet {
		b.say(now, "... still compiling:")
	}
}

// say prints a line with what is compiled and the time.
func (b *build) say(now time.Time, what string) {
	fmt.Fprintf(b.out, "%s %d of %d packages  (%s)\n", what, min(b.compiled, b.packages), b.packages, clock(now.Sub(b.began)))
	b.spoke = now
}
