package test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// testTimeout is how long a test waits for what must happen, on a busy machine.
const testTimeout = await.Limit

// A weir is one running process of the binary under test.
type weir struct {
	*weirtest.Process
	Dir  string // the working directory
	File string // the configuration
	log  *logtest.Log

	t *testing.T
}

// start writes a configuration (the listeners are added) to a folder of its own,
// starts weir with it, and waits until it is ready.
func start(t *testing.T, config string) *weir {
	t.Helper()
	file := weirtest.Write(t, config+weirtest.Listeners)
	return startWith(t, filepath.Dir(file), "-c", file)
}

// startWith starts weir in dir with args; the configuration must name 127.0.0.1:0
// for both listeners.
func startWith(t *testing.T, dir string, args ...string) *weir {
	t.Helper()
	return launch(t, dir, exec.Command("weir", args...))
}

// launch is startWith for a command that the caller makes.
func launch(t *testing.T, dir string, cmd *exec.Cmd) *weir {
	t.Helper()
	cmd.Dir = dir
	p := weirtest.Start(t, cmd)
	return &weir{p, dir, filepath.Join(dir, "weir.yaml"), p.Log, t}
}

// edit replaces the configuration in place, as a person with a plain editor does.
func (w *weir) edit(config string) {
	w.t.Helper()
	write(w.t, w.File, config+weirtest.Listeners)
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
