// Package await is how tests wait for what other goroutines and processes bring about:
// until it is so, and not for some time.
package await

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Limit is how long a test waits for what must happen, on a busy machine. It is a
// failure to reach it.
const Limit = 2 * time.Minute

// It is looked often at first, and the less often the longer it takes: who is asked has work to do.
const (
	often  = 5 * time.Millisecond
	seldom = 50 * time.Millisecond
)

// Until waits until holds says yes. After Limit it ends the test, with what was waited
// for and with what is known, such as a log. holds is called by the goroutine of the
// test, which it may end.
func Until(tb testing.TB, what string, holds func() bool, known ...fmt.Stringer) {
	tb.Helper()
	if within(Limit, holds) {
		return
	}
	for _, k := range known {
		what += "\n" + k.String()
	}
	tb.Fatalf("not within %v: %s", Limit, what)
}

// Within is Until with a limit of its own.
func Within(tb testing.TB, limit time.Duration, what string, holds func() bool) {
	tb.Helper()
	if !within(limit, holds) {
		tb.Fatalf("not within %v: %s", limit, what)
	}
}

func within(limit time.Duration, holds func() bool) bool {
	began, over := time.Now(), time.After(limit)
	for !holds() {
		select {
		case <-time.After(min(seldom, max(often, time.Since(began)/20))):
		case <-over:
			return false
		}
	}
	return true
}

// Value waits for a value of a channel. After Limit it ends the test, with what was
// waited for.
func Value[T any](tb testing.TB, c <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		tb.Fatalf("not within %v: %s", Limit, what)
		panic("unreachable")
	}
}

// Stopped waits until all threads of a process stand still after SIGSTOP: some go on for a moment when the signal
// has been sent. Where there is no /proc it does not wait.
func Stopped(tb testing.TB, pid int) {
	tb.Helper()
	Until(tb, "the stop of process "+strconv.Itoa(pid), func() bool {
		threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
		for _, path := range threads {
			stat, _ := os.ReadFile(path)
			if _, state, _ := bytes.Cut(stat, []byte(") ")); len(state) > 0 && bytes.IndexByte([]byte("TtZX"), state[0]) < 0 {
				return false
			}
		}
		return true
	})
}
