package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/test/logtest"
)

// listenNotify is a socket in systemd's place. heard waits until a state was told there.
func listenNotify(t *testing.T) (heard func(state string) []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(state string) []string {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				t.Fatalf("waiting for %s: %v", state, err)
			}
			if lines := strings.Split(string(buffer[:n]), "\n"); slices.Contains(lines, state) {
				return lines
			}
		}
	}
}

func TestSystemd_IsToldFromStartToEnd(t *testing.T) {
	heard := listenNotify(t)
	reload := make(chan os.Signal, 1)
	n, err := startNode(t, writeConfig(t, ""), reload)
	if err != nil {
		t.Fatal(err)
	}
	if got := heard("READY=1"); !slices.Contains(got, "STATUS=serving generation 1") {
		t.Errorf("ready: %q; want the generation", got)
	}
	reload <- os.Interrupt
	if got := heard("RELOADING=1"); !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "MONOTONIC_USEC=") }) {
		t.Errorf("reloading: %q; want the time, as Type=notify-reload wants it", got)
	}
	heard("READY=1")
	n.end()
	heard("STOPPING=1")
}

// The watchdog hears of a node as long as its admin listener answers.
func TestSystemd_Watchdog(t *testing.T) {
	heard := listenNotify(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := mustStart(t, writeConfig(t, ""))
	heard("WATCHDOG=1")
	heard("WATCHDOG=1")
	if !n.alive() {
		t.Error("a node that serves is not alive")
	}
	n.end()
	if n.alive() {
		t.Error("a node that has ended is alive")
	}
}

func TestSystemd_WatchdogThatNobodyWants(t *testing.T) {
	for _, env := range []string{"", "nonsense"} {
		t.Setenv("WATCHDOG_USEC", env)
		var log logtest.Log
		asked := false
		systemd{zerolog.New(&log)}.watchdog(t.Context(), func() bool { asked = true; return true }) // returns at once
		if asked || (env != "") != strings.Contains(log.String(), "watchdog off") {
			t.Errorf("WATCHDOG_USEC=%q: asked %v, log %q", env, asked, log.String())
		}
	}
}

// Twice in the time that systemd gives; a process that hangs is not reported alive.
func TestSystemd_WatchdogInTime(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "10000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
		defer cancel()
		asked := 0
		systemd{zerolog.Nop()}.watchdog(ctx, func() bool { asked++; return false })
		if asked != 5 {
			t.Errorf("asked %d times in 21 s; want 5", asked)
		}
	})
}

func TestSystemd_ASocketThatIsGoneIsLogged(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	var log logtest.Log
	systemd{zerolog.New(&log)}.stopping()
	if !strings.Contains(log.String(), "sd_notify failed") {
		t.Errorf("log %q", log.String())
	}
}
