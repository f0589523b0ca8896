// Command report runs go test and tells, while it runs, what a person who waits
// wants to know: each package as it ends with its place in the whole and the time
// so far, what is still running while nothing ends, and the output of what failed.
//
//	go run ./test/report -packages 40 -limit 10m -- go test -json ./...
//	go run ./test/report -packages 41 -- go test -json ./... -- go test -C test/deploy -json ./...
//
// Commands are separated by "--" and must print the events of test2json. The limit
// bounds the time in which tests run; building counts for nothing. When it is
// reached, the tests that are running are named and count as failed. The last line
// is "N passed, N failed"; the exit code is 0 only if nothing failed.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-proxy/weir/test/processgroup"
)

func main() {
	packages := flag.Int("packages", 0, "how many packages there are; 0 for unknown")
	limit := flag.Duration("limit", 0, "the most time that tests may run; 0 for any")
	quiet := flag.Duration("quiet", 30*time.Second, "the most time without a line of progress")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := newReport(os.Stdout, *packages, time.Now())
	r.limit, r.quiet = *limit, *quiet
	for _, command := range split(flag.Args()) {
		if !r.run(ctx, command) {
			break
		}
	}
	os.Exit(r.end())
}

// split cuts args into commands at each "--".
func split(args []string) (commands [][]string) {
	for {
		i := slices.Index(args, "--")
		if i < 0 {
			return append(commands, args)
		}
		commands, args = append(commands, args[:i]), args[i+1:]
	}
}

// run runs one command to its end and reports whether another may follow: the
// limit was not reached and nobody interrupted.
func (r *report) run(ctx context.Context, command []string) bool {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	processgroup.Lead(cmd) // its tests end with it
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.broken(err)
		return false
	}
	lines := make(chan []byte)
	go read(out, lines)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				if err := cmd.Wait(); err != nil && r.failed == 0 {
					r.broken(err)
				}
				return true
			}
			r.line(time.Now(), line)
		case now := <-tick.C:
			if !r.tick(now) {
				kill(cmd, lines)
				return false
			}
		case <-ctx.Done():
			kill(cmd, lines)
			r.broken(context.Cause(ctx))
			return false
		}
	}
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

// kill ends the command and all that it has started.
func kill(cmd *exec.Cmd, lines <-chan []byte) {
	processgroup.Signal(cmd, syscall.SIGKILL)
	for range lines {
	}
	_ = cmd.Wait() // killed
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
