// Command report runs go test and tells, while it runs, what a person who waits
// wants to know: each package as it ends with its place in the whole and the time
// so far, what is still running while nothing ends, and the output of what failed.
//
//	go run ./test/report -packages 40 -limit 10m -- go test -json ./...
//	go run ./test/report -compile 300 -- go list -v -export -test -f '' ./...
//
// The command must print the events of test2json. The limit
// bounds the time in which tests run and none begins or ends; a machine that is only
// busy does not reach it, and building counts for nothing. When it is reached, the
// tests that are running are named, with their goroutines, and count as failed. The
// last ten lines name what failed, and why. The last line is "N passed, N failed" if
// all packages have ended, and begins with NOT COMPLETE if not; the exit code is 0 only
// if nothing failed.
//
// With -compile, the command names each package that it compiles, as -v makes the go
// command do, and how many of that number are compiled is said instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weir-proxy/weir/test/processgroup"
)

// dumping is how long a process that hangs may take to tell where.
const dumping = 10 * time.Second

func main() {
	packages := flag.Int("packages", 0, "how many packages there are; 0 for unknown")
	limit := flag.Duration("limit", 0, "the most time that tests may run without one that begins or ends; 0 for any")
	quiet := flag.Duration("quiet", 30*time.Second, "the most time without a line of progress")
	compiles := flag.Int("compile", -1, "how many packages the command compiles, instead of tests that it runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *compiles >= 0 {
		b := newBuild(os.Stdout, *compiles, time.Now())
		b.quiet = *quiet
		os.Exit(b.run(ctx, flag.Args()))
	}
	r := newReport(os.Stdout, *packages, time.Now())
	r.module, r.limit, r.quiet = "github.com/weir-proxy/weir", *limit, *quiet
	r.run(ctx, flag.Args())
	os.Exit(r.end(time.Now()))
}

// A process is a command that runs, with all that it has started.
type process struct {
	cmd   *exec.Cmd
	lines chan []byte // of its output; closed at its end
}

// start starts command. What it writes to its standard error is passed on, or is among
// its lines if errors is nil.
func start(command []string, errors io.Writer) (*process, error) {
	p := &process{exec.Command(command[0], command[1:]...), make(chan []byte)}
	processgroup.Lead(p.cmd) // what it starts ends with it
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.cmd.Stderr = errors; errors == nil {
		p.cmd.Stderr = p.cmd.Stdout
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go read(out, p.lines)
	return p, nil
}

// read hands out the lines of from, until its end.
func read(from io.Reader, lines chan<- []byte) {
	defer close(lines)
	buffered := bufio.NewReader(from)
	for {
		line, err := buffered.ReadBytes('\n')
		if len(line) > 0 {
			lines <- line
		}
		if err != nil {
			return
		}
	}
}

// signal sends s to all processes. They may have ended by themselves.
func (p *process) signal(s syscall.Signal) { processgroup.Signal(p.cmd, s) }

// kill ends the command and all that it has started.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	for range p.lines {
	}
	_ = p.cmd.Wait() // killed
}

// run runs a command to its end, or until the limit is reached or somebody interrupts.
func (r *report) run(ctx context.Context, command []string) {
	p, err := start(command, os.Stderr)
	if err != nil {
		r.broken(err)
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				if err := p.cmd.Wait(); err != nil && r.failed == 0 {
					r.broken(err)
				}
				return
			}
			r.line(time.Now(), line)
		case now := <-tick.C:
			if !r.tick(now) {
				r.dump(p)
				return
			}
		case <-ctx.Done():
			p.kill()
			r.interrupted(time.Now())
			return
		}
	}
}

// dump ends a command that hangs, and has its processes tell before where they are.
func (r *report) dump(p *process) {
	p.signal(syscall.SIGQUIT)
	over := time.AfterFunc(dumping, func() { p.signal(syscall.SIGKILL) })
	defer over.Stop()
	for line := range p.lines {
		r.line(time.Now(), line)
	}
	p.signal(syscall.SIGKILL) // servers that tests have started
	_ = p.cmd.Wait()          // killed
	r.killed()
}

// line takes in one line of the command's output: an event, or text of the go
// command itself.
func (r *report) line(now time.Time, line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprint(r.out, strings.TrimRight(string(line), "\n")+"\n")
		return
	}
	r.event(now, e)
}
