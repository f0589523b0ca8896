package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// check ends the test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeConfig writes a configuration that listens on free ports.
func writeConfig(t *testing.T, more string) string {
	t.Helper()
	return write(t, "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: echo}]\nupstreams: {echo: echo}\n"+more)
}

func write(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	replaceFile(t, path, yaml)
	return path
}

// A testNode is a node and what it logs.
type testNode struct {
	*Node
	t   *testing.T
	log *logtest.Log
	end func() error // Close, once
}

// startNode starts a node on what the file at path says, until the test ends. It is the
// error of Start when that fails.
func startNode(t *testing.T, path string, reload <-chan os.Signal) (*testNode, error) {
	t.Helper()
	c, err := config.Load(path)
	check(t, err)
	out := new(logtest.Log)
	log := NewLog(out, zerolog.DebugLevel)
	n, err := Start(t.Context(), Options{Path: path, Config: c, Load: func() (*config.Config, error) { return config.Load(path) }, Log: log, Build: Build{Version: "v0.0.1"}, Reload: reload})
	if err != nil {
		log.Close()
		return &testNode{t: t, log: out}, err
	}
	end := sync.OnceValue(func() error {
		defer log.Close()
		http.DefaultClient.CloseIdleConnections() // a drain waits for a second until these have been told
		return n.Close()
	})
	t.Cleanup(func() { end() })
	return &testNode{n, t, out, end}, nil
}

// mustStart is begin for a node that starts.
func mustStart(t *testing.T, path string) *testNode {
	t.Helper()
	n, err := startNode(t, path, nil)
	check(t, err)
	return n
}

// waitForLog waits for a line of the log and returns its fields.
func (n *testNode) waitForLog(message string) map[string]any {
	n.t.Helper()
	var found map[string]any
	await.Until(n.t, "a line "+message, func() bool {
		found = n.findLog(message)
		return found != nil
	}, n.log)
	return found
}

// findLog is the first line of the log with that message; nil if there is none.
func (n *testNode) findLog(message string) map[string]any { return n.log.Find(message) }

// get is the answer at a URL, without its body.
func get(t *testing.T, url string) *http.Response {
	t.Helper()
	answer, err := http.Get(url)
	check(t, err)
	answer.Body.Close()
	return answer
}

// fetch is what is answered at a URL.
func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return string(text)
}

func TestNode_FromStartToDrain(t *testing.T) {
	path := writeConfig(t, "")
	reload := make(chan os.Signal, 1)
	n, err := startNode(t, path, reload)
	check(t, err)
	base := "http://" + n.Address("admin")
	for _, url := range []string{"http://" + n.Address("http") + "/a", base + "/readyz"} {
		answer := get(t, url)
		if answer.StatusCode != 200 {
			t.Errorf("%s = %d", url, answer.StatusCode)
		}
	}
	if err := (admin.Client{Address: n.Address("admin")}).Healthz(t.Context()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	check(t, err)
	replaceFile(t, path, "routes: nonsense\n")
	reload <- os.Interrupt // any signal on that channel is the one to reload
	if got := n.waitForLog("reload refused"); got["file"] != path || got["line"] != 1.0 || got["column"] != 9.0 {
		t.Errorf("the log says %v; want the place", got)
	}
	if ready, metrics := fetch(t, base+"/readyz"), fetch(t, base+"/metrics"); !strings.Contains(ready, `"degraded"`) || !strings.Contains(ready, "refused since") ||
		strings.Contains(ready, "nonsense") || !strings.Contains(metrics, "\nweir_config_last_reload_successful 0\n") {
		t.Errorf("while the refusal stands readyz says %s", ready)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil { // as it was: nothing changes, and all is well again
		t.Fatal(err)
	}
	reload <- os.Interrupt
	await.Until(t, "the refusal is over", func() bool {
		return strings.Contains(fetch(t, base+"/metrics"), "\nweir_config_last_reload_successful 1\n")
	})
	if ready := fetch(t, base+"/readyz"); !strings.Contains(ready, `"status":"ok"`) {
		t.Errorf("after the edit is undone readyz says %s", ready)
	}
	if err := n.end(); err != nil {
		t.Error(err)
	}
	if n.findLog("drained") == nil {
		t.Errorf("not drained:\n%s", n.log)
	}
}

func TestNode_WaitsUntilItIsTold(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Wait(ctx); err != nil {
		t.Errorf("told to end: %v; want no error", err)
	}
	// A listener that is closed behind the server's back can take nobody any more.
	n.listeners[0].Close()
	if err := n.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "serve ") {
		t.Errorf("a listener has failed: %v; want that it says so", err)
	}
}

func TestNode_PortTaken(t *testing.T) {
	taken := mustStart(t, writeConfig(t, "")).Address("http")
	path := write(t, "listen: {http: '"+taken+"'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /a}, upstream: 'http://127.0.0.1:1'}]\n")
	if _, err := startNode(t, path, nil); err == nil || !strings.Contains(err.Error(), "address already in use; ") {
		t.Errorf("a second weir on one port: %v; want that it says so", err)
	}
}

// What a start has opened is closed when it fails later.
func TestNode_FailedStartLeavesNothingOpen(t *testing.T) {
	l := sockettest.Listen(t)
	admin := l.Addr().String()
	l.Close()
	path := write(t, "listen: {http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}}\nadmin: {http: '"+admin+"'}\nroutes: [{match: {path: /a}, respond: {body: a}}]\n")
	if _, err := startNode(t, path, nil); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Fatalf("a start without its certificate: %v; want the name of the file", err)
	}
	if _, err := net.Dial("tcp", admin); err == nil {
		t.Fatal("the admin listener is still open")
	}
}

func TestNode_StartsWithoutRedis(t *testing.T) {
	n := mustStart(t, writeConfig(t, "store: redis\nredis: {addrs: ['127.0.0.1:1']}\n"))
	n.waitForLog("redis unreachable; limits go by on_store_failure")
	if got := fetch(t, "http://"+n.Address("admin")+"/readyz"); !strings.Contains(got, `"status":"degraded"`) {
		t.Errorf("readyz = %s; want degraded", got)
	}
}

// What cannot be written is said at the start, and not with the first push.
func TestNode_SaysWhatItCannotWrite(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file") // no folder can be made in its place, by root either
	check(t, os.WriteFile(blocked, nil, 0o600))
	for want, path := range map[string]string{
		"reload.keep " + blocked + "/kept.json cannot be written: ": writeConfig(t, "store: redis\nredis: {addrs: ['127.0.0.1:1']}\nreload: {source: redis, keep: "+blocked+"/kept.json}\n"),
		"listen.tls.acme.storage " + blocked + "/acme cannot be written: ": listened(t,
			"http: '127.0.0.1:0', https: '127.0.0.1:0', tls: {acme: {domains: [a.example], storage: "+blocked+"/acme}}"),
	} {
		if _, err := startNode(t, path, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "may write to") {
			t.Errorf("start: %v; want %q", err, want)
		}
	}
}

// Two nodes in one process share nothing: one ends, and the other serves on.
func TestNode_TwoInOneProcess(t *testing.T) {
	one, two := mustStart(t, writeConfig(t, "")), mustStart(t, writeConfig(t, ""))
	check(t, one.end())
	fetch(t, "http://"+two.Address("http")+"/a")
	if _, err := http.Get("http://" + one.Address("http") + "/a"); err == nil {
		t.Error("the node that has ended answers")
	}
}

// A request that is not done when the time to drain is over is an error, and nothing
// else stays open for it.
func TestNode_CloseSaysThatRequestsWereCutOff(t *testing.T) {
	arrived := make(chan struct{})
	slow := sockettest.Listen(t)
	go func() {
		if c, err := slow.Accept(); err == nil {
			close(arrived) // and never an answer
			io.Copy(io.Discard, c)
		}
	}()
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0', drain: {delay: 1ms, within: 50ms}}\nadmin: {http: '127.0.0.1:0'}\n"+
		"routes: [{match: {path: /a}, upstream: slow}]\nupstreams: {slow: 'http://"+slow.Addr().String()+"'}\n"))
	answered := make(chan error, 1)
	go func() {
		answer, err := http.Get("http://" + n.Address("http") + "/a")
		if err == nil {
			answer.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	if err := n.end(); err == nil || !strings.Contains(err.Error(), "requests aborted") || errors.Is(err, errCloseTimeout) {
		t.Errorf("close with a request under way: %v; want that requests were aborted", err)
	}
	<-answered
}

// rewrite puts other text in the place of a file's, as editors do.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	replaceFile(t, path+".new", text)
	check(t, os.Rename(path+".new", path))
}

func TestClosers_LastFirst(t *testing.T) {
	var c closers
	var closed []string
	broken := errors.New("broken")
	for _, name := range []string{"store", "proxy", "requests"} {
		c.push(name, func(context.Context) error {
			closed = append(closed, name)
			if name == "proxy" {
				return broken
			}
			return nil
		})
	}
	if err := c.close(t.Context()); !errors.Is(err, broken) || !slices.Equal(closed, []string{"requests", "proxy", "store"}) {
		t.Errorf("closed %v, %v; want the last first, and all in spite of the error", closed, err)
	}
	if err := c.close(t.Context()); err != nil || len(closed) != 3 {
		t.Errorf("closed again: %v, %v; want nothing", closed, err)
	}
}

// A part that hangs is named and left behind, after its own time and not before.
func TestClosers_OneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closers
		var storeAt time.Duration
		began, free := time.Now(), make(chan struct{})
		c.push("store", func(context.Context) error { storeAt = time.Since(began); return nil })
		c.push("proxy", func(context.Context) error { <-free; return nil })
		c.stack = append(c.stack, closer{"requests", time.Minute, func(context.Context) error { time.Sleep(59 * time.Second); return nil }})
		err := c.close(t.Context())
		if !errors.Is(err, errCloseTimeout) || !strings.Contains(err.Error(), "close proxy: ") || strings.Contains(err.Error(), "requests") {
			t.Errorf("error %v; want the name of what hangs, and no other", err)
		}
		if want := 59*time.Second + closeTimeout; storeAt != want {
			t.Errorf("the store was closed after %v; want %v", storeAt, want)
		}
		close(free)
	})
}

// The context of a part ends with its time, so that it can give up in order.
func TestClosers_ContextEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closers
		c.push("proxy", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		if err := c.close(t.Context()); err == nil || time.Since(began) != closeTimeout {
			t.Errorf("closed after %v: %v; want %v and an error", time.Since(began), err, closeTimeout)
		}
	})
}

func TestTasks_EndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTasks()
		for _, name := range []string{"a", "b"} {
			all.start(name, func(ctx context.Context) { <-ctx.Done() })
		}
		synctest.Wait()
		if err := errors.Join(all.stop(t.Context()), all.wait(t.Context())); err != nil {
			t.Errorf("stop and wait: %v", err)
		}
	})
}

func TestTasks_NamesThoseThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, free := newTasks(), make(chan struct{})
		all.start("leader", func(context.Context) { <-free })
		all.start("peers", func(context.Context) { <-free })
		all.start("watcher", func(ctx context.Context) { <-ctx.Done() })
		all.stop(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := all.wait(ctx); !errors.Is(err, errCloseTimeout) || !strings.Contains(err.Error(), "leader, peers:") || strings.Contains(err.Error(), "watcher") {
			t.Errorf("wait: %v; want the names of those two", err)
		}
		close(free)
	})
}

// Tasks that have ended are not late, also if nobody waits any more.
func TestTasks_ThatHaveEndedAreNotLate(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := newTasks().wait(over); err != nil {
			t.Fatalf("wait: %v", err)
		}
	}
}
