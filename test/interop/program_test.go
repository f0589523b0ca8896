package interop

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/redistest"
)

// program is the path of a program of others: what PATH has, or what test/install
// has left. Without one the test fails.
func program(t *testing.T, name string) string {
	t.Helper()
	cached, err := filepath.Abs(filepath.Join("..", ".cache", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, candidate := range []string{name, cached} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not here: run test/install %s, as ./test/interop/run does", name, name)
	return ""
}

// mustRun is what a program that must succeed has written, to both its outputs.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := run(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return text
}

// run runs a program to its end.
func run(t *testing.T, name string, args ...string) (text string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*enough)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t, name), args...).CombinedOutput()
	return string(out), err
}

// An outputBuffer is what a program that runs has written so far.
type outputBuffer struct {
	mu   sync.Mutex // guards what follows
	text bytes.Buffer
}

func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *outputBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startServer starts a server that listens on addr, and waits until it does. It
// ends with the test.
func startServer(t *testing.T, c *exec.Cmd, addr string) {
	t.Helper()
	out := new(outputBuffer)
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The signal comes with the end of the thread that has started the program, and
		// not of the process: this one lasts as long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		if started <- err; err == nil {
			ended <- c.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM) // a shell may have let it ignore the other
		select {
		case <-ended:
		case <-time.After(enough):
			c.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(c.Path), out)
		}
	})
	await(t, c.Path+" on "+addr, func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", c.Path, err, out)
		default:
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

// await waits until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(enough)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", enough, what)
		}
		<-tick.C
	}
}

// freeAddress is an address on this machine that nobody listens on.
func freeAddress(t *testing.T) (addr string) {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t)))
}

// startProgram runs a program until it or the test ends, and returns what it writes.
func startProgram(t *testing.T, name string, args ...string) *outputBuffer {
	t.Helper()
	out := new(outputBuffer)
	c := exec.CommandContext(t.Context(), program(t, name), args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Wait() })
	return out
}
