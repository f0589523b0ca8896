package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/weirtest"
)

// A manager stands for systemd: it hears what a service says.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn, path}
}

// hears waits for a message with that assignment, and returns all of it.
func (m *manager) hears(assignment string) map[string]string {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(testTimeout))
	room := make([]byte, 4096)
	for {
		n, err := m.conn.Read(room)
		if err != nil {
			m.t.Fatalf("waiting for %s: %v", assignment, err)
		}
		said := map[string]string{}
		for line := range strings.SplitSeq(string(room[:n]), "\n") {
			name, value, _ := strings.Cut(line, "=")
			said[name] = value
		}
		if name, value, _ := strings.Cut(assignment, "="); said[name] == value {
			return said
		}
	}
}

func TestNotify_SaysHowItFares(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, smsYAML("1/1m", "")+weirtest.Listeners)
	cmd := exec.Command("weir", "-c", file)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=400000")
	w := launch(t, filepath.Dir(file), cmd)
	if status := m.hears("READY=1")["STATUS"]; !strings.Contains(status, "serving") {
		t.Errorf("the status is %q", status)
	}
	for range 3 {
		m.hears("WATCHDOG=1")
	}
	w.Signal(syscall.SIGHUP)
	if at, err := strconv.ParseInt(m.hears("RELOADING=1")["MONOTONIC_USEC"], 10, 64); err != nil || at <= 0 {
		t.Errorf("a reload begins at %d (%v), want a time", at, err)
	}
	m.hears("READY=1")
	w.Signal(syscall.SIGTERM)
	m.hears("STOPPING=1")
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
