package test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
)

// testTimeout is how long a test waits for what must happen, on a busy machine.
const testTimeout = time.Minute

// tail is added to configurations: ports that nobody else has.
const tail = `
listen: {http: "127.0.0.1:0"}
admin: {http: "127.0.0.1:0"}
`

// A weir is one running process of the binary under test.
type weir struct {
	URL   string // http://host:port for clients
	Admin string // http://host:port for operators
	Dir   string // the working directory
	File  string // the configuration
	log   *logtest.Log

	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start writes a configuration (the listeners are added) to a folder of its own,
// starts weir with it, and waits until it is ready. The process ends with the
// test, which fails if the race detector had something to say.
func start(t *testing.T, config string) *weir {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, config+tail)
	return startWith(t, filepath.Dir(file), "-c", file)
}

// startWith starts weir in dir with args; the configuration must name 127.0.0.1:0
// for both listeners.
func startWith(t *testing.T, dir string, args ...string) *weir {
	t.Helper()
	return launch(t, dir, func(w *weir) { w.cmd = exec.Command("weir", args...) })
}

// launch is startWith for a command that the caller makes.
func launch(t *testing.T, dir string, prepare func(w *weir)) *weir {
	t.Helper()
	w := &weir{Dir: dir, File: filepath.Join(dir, "weir.yaml"), t: t, log: new(logtest.Log), done: make(chan struct{})}
	prepare(w)
	w.cmd.Dir = dir
	w.cmd.Stderr = w.log
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		w.cmd.Wait()
		close(w.done)
	}()
	t.Cleanup(w.end)
	serving := w.logged("serving", nil)
	w.URL = "http://" + serving.Text("http")
	w.Admin = "http://" + serving.Text("admin")
	await.Until(t, "weir is ready", func() bool {
		if w.ended() {
			t.Fatalf("weir ended before it was ready")
		}
		status, _ := w.get(w.Admin + "/readyz")
		return status == http.StatusOK
	})
	return w
}

// end stops the process if it still runs, and looks back at what it said.
func (w *weir) end() {
	if !w.ended() {
		w.signal(syscall.SIGTERM)
		select {
		case <-w.done:
		case <-time.After(testTimeout):
			w.t.Errorf("weir did not end within %v after SIGTERM", testTimeout)
			w.kill()
		}
	}
	said := w.log.String()
	if strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
		w.t.Errorf("weir raced or panicked")
	}
	if w.t.Failed() {
		w.t.Logf("weir said:\n%s", last(said, 60))
	}
}

func (w *weir) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// kill ends the process as kill -9 does.
func (w *weir) kill() {
	w.cmd.Process.Kill()
	<-w.done
}

func (w *weir) signal(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Fatal(err)
	}
}

// exit waits for the process to end by itself and returns its code.
func (w *weir) exit() int {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(testTimeout):
		w.t.Fatalf("weir did not end within %v", testTimeout)
	}
	return w.cmd.ProcessState.ExitCode()
}

// edit replaces the configuration in place, as a person with a plain editor does.
func (w *weir) edit(config string) {
	w.t.Helper()
	write(w.t, w.File, config+tail)
}

// logged waits for a line with that message for which like holds, and returns it.
func (w *weir) logged(message string, like func(logtest.Line) bool) logtest.Line {
	w.t.Helper()
	var found logtest.Line
	await.Until(w.t, "a log line "+message, func() bool {
		for _, l := range w.log.Lines() {
			if l.Text("message") == message && (like == nil || like(l)) {
				found = l
				return true
			}
		}
		if w.ended() {
			w.t.Fatalf("weir ended without saying %q", message)
		}
		return false
	})
	return found
}

// get fetches a page of the admin side, or anything else.
func (w *weir) get(url string) (status int, body string) {
	w.t.Helper()
	return do(w.t, http.MethodGet, url, nil)
}

// reload asks for a reload as an operator does.
func (w *weir) reload() (status int, body string) {
	w.t.Helper()
	return do(w.t, http.MethodPost, w.Admin+"/reload", nil)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}


// last returns the last n lines of s.
func last(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
