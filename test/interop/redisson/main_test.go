//go:build java

// Package redisson lets the real Redisson and our packages hold the same locks
// and the same rate limiters, on one real Redis. It needs a JDK and Maven, so
// it is no part of ./test/run:
//
//	./test/interop/redisson/run
package redisson

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// soon is how long a test waits for what must happen at once: longer than any
// hiccup, shorter than the 30 s lease after which a waiter who was not woken
// would see for itself. handover is how long Java tries to get a lock.
const (
	soon     = 25 * time.Second
	handover = 5 * time.Second
)

func TestMain(m *testing.M) {
	logging.Disable() // of the client: connections are cut here on purpose
	os.Exit(m.Run())
}

// version is the Redisson that is being tried, as ./run says.
func version(t testing.TB) string {
	t.Helper()
	v := os.Getenv("WEIR_REDISSON")
	if v == "" {
		t.Fatal("WEIR_REDISSON is not set: run ./test/interop/redisson/run, which builds the Java side first")
	}
	return v
}

// older reports whether the Redisson is of the 3.17 line or before, without fenced
// locks and locks of groups.
func older(t testing.TB) bool { return before(t, 3, 18) }

// before reports whether the Redisson is older than that version.
func before(t testing.TB, major, minor int) bool {
	t.Helper()
	var a, b int
	if n, err := fmt.Sscanf(version(t), "%d.%d", &a, &b); n != 2 {
		t.Fatalf("version %q: %v", version(t), err)
	}
	return a < major || a == major && b < minor
}

// A java is a process with a Redisson client in it.
type java struct {
	t   testing.TB
	id  string // Redisson's id of this client
	cmd *exec.Cmd

	mu    sync.Mutex // guards what follows; never held over I/O
	in    io.Writer
	count int
	open  map[string]chan string // number of a line -> where its answer goes
	errs  bytes.Buffer
}

// newJava starts one on a server, with the usual lease of 30 s.
func newJava(t testing.TB, addr string) *java {
	t.Helper()
	return startJava(t, "single", addr, 30*time.Second)
}

func startJava(t testing.TB, mode, addrs string, watchdog time.Duration) *java {
	t.Helper()
	build := filepath.Join(os.Getenv("WEIR_REDISSON_BUILD"), version(t))
	classes := filepath.Join(build, "classes") + string(os.PathListSeparator) + filepath.Join(build, "lib", "*")
	j := &java{t: t, open: make(map[string]chan string)}
	j.cmd = exec.Command("java", "-XX:TieredStopAtLevel=1", "-cp", classes, "weir.Player",
		mode, addrs, fmt.Sprint(watchdog.Milliseconds()))
	j.cmd.Stderr = &j.errs
	in, err := j.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.in = in
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	if !lines.Scan() {
		j.cmd.Wait()
		t.Fatalf("java did not start: %s", j.errs.String())
	}
	j.id = strings.TrimPrefix(lines.Text(), "ready ")
	var heard sync.WaitGroup
	heard.Go(func() { j.hear(lines) })
	t.Cleanup(func() {
		in.Close()
		j.cmd.Process.Kill()
		heard.Wait()
		j.cmd.Wait()
		if t.Failed() && j.errs.Len() > 0 {
			t.Logf("java said: %s", j.errs.String())
		}
	})
	return j
}

// hear hands out answers until the process ends.
func (j *java) hear(lines *bufio.Scanner) {
	for lines.Scan() {
		number, answer, _ := strings.Cut(lines.Text(), " ")
		j.mu.Lock()
		to := j.open[number]
		delete(j.open, number)
		j.mu.Unlock()
		if to != nil {
			to <- answer
		}
	}
}

// kill ends the process as kill -9 does.
func (j *java) kill() { j.cmd.Process.Kill() }

// A reply is what an actor's verb will have returned.
type reply struct {
	j      *java
	asked  string
	answer chan string
}

// begin tells an actor, a thread of the process, to do something.
func (j *java) begin(actor, verb string, args ...any) *reply {
	j.t.Helper()
	r := &reply{j: j, asked: verb + fmt.Sprintln(args...), answer: make(chan string, 1)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count++
	number := fmt.Sprint(j.count)
	j.open[number] = r.answer
	if _, err := io.WriteString(j.in, number+" "+actor+" "+verb+" "+fmt.Sprintln(args...)); err != nil {
		j.t.Errorf("tell java: %v", err)
	}
	return r
}

// is waits for the answer, which must be want.
func (r *reply) is(want string) {
	r.j.t.Helper()
	if got := r.wait(); got != want {
		r.j.t.Fatalf("java's %s = %q, want %q", r.asked, got, want)
	}
}

// wait waits for the answer.
func (r *reply) wait() string {
	r.j.t.Helper()
	return strings.TrimPrefix(await.Value(r.j.t, r.answer, "answer of java to "+r.asked), "ok ")
}

// waits fails if there is an answer already.
func (r *reply) waits() {
	r.j.t.Helper()
	select {
	case a := <-r.answer:
		r.j.t.Fatalf("java's %s = %q, want it to wait", r.asked, a)
	default:
	}
}

// do is begin and is.
func (j *java) do(want, actor, verb string, args ...any) {
	j.t.Helper()
	j.begin(actor, verb, args...).is(want)
}

// owner is how an actor's name stands in Redis.
func (j *java) owner(actor string) string {
	j.t.Helper()
	return j.begin(actor, "me").wait()
}

// A testServer is one Redis, with a client that looks into it.
type testServer struct {
	t      testing.TB
	server *redistest.Server
	eye    *redis.Client
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	w := &testServer{t: t, server: redistest.Start(t)}
	w.eye = w.client(w.server.Addr)
	return w
}

func (t *testServer) client(addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.t.Cleanup(func() { rdb.Close() })
	return rdb
}

// locker is a Go process that hears of a release or does not notice for an hour.
func (t *testServer) locker(settings ...lock.LockerOption) *lock.Locker {
	l := lock.New(t.client(t.server.Addr), append([]lock.LockerOption{lock.WithPollInterval(time.Hour)}, settings...)...)
	t.t.Cleanup(l.Close)
	return l
}

// listens waits until somebody is subscribed to a channel that begins so.
func (t *testServer) listens(n int, channel string) {
	t.t.Helper()
	await.Until(t.t, fmt.Sprint(n, " listen to ", channel), func() bool {
		channels, err := t.eye.PubSubChannels(t.t.Context(), channel+"*").Result()
		return err == nil && len(channels) >= n
	})
}

func brief(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}
