// Package weirtest builds Weir and runs it as a process, with a configuration of a
// test's own. A process ends with the test that started it.
package weirtest

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
)

// Listeners is the part of a configuration that listens on ports that nobody else has.
const Listeners = `
listen: {http: "127.0.0.1:0"}
admin: {http: "127.0.0.1:0"}
`

// Write writes a configuration to a folder of its own.
func Write(tb testing.TB, yaml string) (path string) {
	tb.Helper()
	return filetest.Files(tb, "weir.yaml", yaml)
}

// Load reads a configuration from a file that says this.
func Load(tb testing.TB, yaml string) *config.Config {
	tb.Helper()
	c, err := config.Load(Write(tb, yaml))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Build builds Weir into dir, with more flags for go build.
func Build(dir string, flags ...string) (program string, err error) {
	_, here, _, _ := runtime.Caller(0)
	program = filepath.Join(dir, "weir")
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), ".")...)
	cmd.Dir = filepath.Dir(filepath.Dir(filepath.Dir(here)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return program, nil
}

// Main runs tests with Weir first on PATH, built with these flags, and ends the process. If it
// cannot be built, the tests that need it fail.
func Main(m *testing.M, flags ...string) {
	dir, err := os.MkdirTemp("", "weir-test-")
	if err == nil {
		_, err = Build(dir, flags...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each process lingers for a second
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Race is the flag of the race detector, unless the tests are to be quick.
func Race() []string {
	flag.Parse()
	if testing.Short() {
		return nil
	}
	return []string{"-race"}
}

// A Process is one running process of Weir.
type Process struct {
	URL   string // http://host:port for clients
	Admin string // http://host:port for operators
	Log   *logtest.Log

	tb   testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// Start starts cmd, which runs Weir with Listeners, and waits until it is ready. It ends
// with the test, which fails if the process raced or panicked.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{Log: new(logtest.Log), tb: tb, cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = p.Log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // Exit tells
		close(p.done)
	}()
	tb.Cleanup(p.end)
	serving := p.WaitForLog("serving", nil)
	p.URL, p.Admin = "http://"+serving.Text("http"), "http://"+serving.Text("admin")
	asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Limit}
	await.Until(tb, "weir is ready", func() bool {
		if p.Ended() {
			tb.Fatalf("weir ended before it was ready")
		}
		answer, err := asks.Get(p.Admin + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return p
}

// WaitForLog waits for a line with that message for which like, unless it is nil, holds.
func (p *Process) WaitForLog(message string, like func(logtest.Line) bool) (found logtest.Line) {
	p.tb.Helper()
	await.Until(p.tb, "a log line "+message, func() bool {
		ended := p.Ended()
		for _, l := range p.Log.Lines() {
			if l.Text("message") == message && (like == nil || like(l)) {
				found = l
				return true
			}
		}
		if ended {
			p.tb.Fatalf("weir ended without saying %q", message)
		}
		return false
	})
	return found
}

// PID is the process' number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// State tells of a process that has ended; it is nil before.
func (p *Process) State() *os.ProcessState {
	if !p.Ended() {
		return nil
	}
	return p.cmd.ProcessState
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Signal sends s, unless the process has ended. After SIGSTOP the process stands still.
func (p *Process) Signal(s os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		await.Stopped(p.tb, p.cmd.Process.Pid)
	}
}

// Exit waits for the process to end by itself and returns its code.
func (p *Process) Exit() int {
	p.tb.Helper()
	await.Value(p.tb, p.done, "the end of weir")
	return p.State().ExitCode()
}

// end stops the process if it still runs, and looks back at what it said.
func (p *Process) end() {
	if !p.Ended() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.tb.Error(err)
		}
		select {
		case <-p.done:
		case <-time.After(await.Limit):
			p.tb.Errorf("weir did not end within %v after SIGTERM", await.Limit)
			p.Kill()
		}
	}
	said := p.Log.String()
	if strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
		p.tb.Errorf("weir raced or panicked")
	}
	if p.tb.Failed() {
		p.tb.Logf("weir said:\n%s", p.Log.Tail(60))
	}
}
