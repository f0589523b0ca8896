package faults

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A disk that is full costs lines of the log, which are counted, and no response. Once
// there is space, lines are written again.
func TestDisk_FullForTheLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "access.log")
	// No file of the process may grow beyond eight blocks of 512 bytes.
	w := start(t, fmt.Sprintf("access_log: {file: %q}\nroutes: [{name: all, match: {path: /*}, respond: {body: ok}}]\n", log), "ulimit -f 8")
	w.settle()
	dropped := func() int { return int(w.metrics()["weir_log_lines_dropped_total"]) }
	a := w.askMany(300, 10, func() answer { return w.ask(w.URL+"/", "one", 0) })
	if !a.only(200) || a.failed > 0 {
		t.Errorf("%v; want 200", a)
	}
	lines := func() (whole int) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if json.Valid([]byte(line)) {
				whole++
			}
		}
		return whole
	}
	await.Until(t, "what is not written is counted", func() bool { return lines()+dropped() >= 300 })
	written := lines()
	if written == 0 || written > 30 {
		t.Errorf("%d lines are in a file of 4 KB", written)
	}
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	w.Signal(syscall.SIGUSR1)
	w.WaitForLog("access log reopened", nil)
	w.ask(w.URL+"/", "one", 0)
	await.Until(t, "the log goes on in another file", func() bool { return lines() > 0 })
	row(t, "disk", "full for the access log", fmt.Sprintf("%v; %d lines written, the others counted in weir_log_lines_dropped_total", a, written))
	w.wantNoLeak()
}

// A disk that is full for reload.keep leaves what was kept before whole; what is pushed is
// served, and the log says that it is not kept.
func TestDisk_FullForKeep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	kept := filepath.Join(t.TempDir(), "kept.json")
	config := func(revision int, padding string) string {
		return fmt.Sprintf("# %s\nroutes: [{name: all, match: {path: /*}, respond: {body: %q}}]\n", padding, strconv.Itoa(revision))
	}
	w := start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s}\nreload: {source: redis, keep: %q}\n", server.Addr, kept)+config(0, ""), "ulimit -f 8")
	push := func(revision int, padding string) {
		file := filepath.Join(t.TempDir(), "next.yaml")
		if err := os.WriteFile(file, []byte(config(revision, padding)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("weir", "push", file, "--admin", w.Admin).CombinedOutput(); err != nil {
			t.Fatalf("push: %v\n%s", err, out)
		}
		await.Until(t, "the revision is served", func() bool {
			r, err := w.client.Get(w.URL)
			if err != nil {
				return false
			}
			defer r.Body.Close()
			var n int
			_, _ = fmt.Fscan(r.Body, &n)
			return n == revision
		})
	}
	var noise []string
	for range 500 {
		noise = append(noise, rand.Text())
	}
	push(1, "")
	var before []byte
	await.Until(t, "the first revision is kept", func() bool {
		before, _ = os.ReadFile(kept)
		return json.Valid(before)
	})
	push(2, strings.Join(noise, "")) // a pushed configuration is compressed
	why := w.WaitForLog("cannot write reload.keep", nil)
	if after, err := os.ReadFile(kept); string(after) != string(before) {
		t.Errorf("%d bytes are kept, want the %d from before (%v)", len(after), len(before), err)
	}
	if files, err := os.ReadDir(filepath.Dir(kept)); len(files) != 1 {
		t.Errorf("%v lie beside it (%v)", files, err)
	}
	push(3, "")
	await.Until(t, "the next revision is kept", func() bool {
		after, _ := os.ReadFile(kept)
		return json.Valid(after) && string(after) != string(before)
	})
	row(t, "disk", "full for `reload.keep`", fmt.Sprintf("what is pushed is served, what was kept stays; the log says %q", why.Text("error")))
}

// Without free descriptors, connections that exist are served, others wait or are closed,
// and all is well once descriptors are free.
func TestDescriptors_AreExhausted(t *testing.T) {
	t.Parallel()
	const most = 64
	w := start(t, fmt.Sprintf("upstreams: {api: {targets: [\"http://%s\"]}}\nroutes: [{name: all, match: {path: /*}, upstream: api}]\n", startUpstream(t)),
		fmt.Sprintf("ulimit -n %d", most))
	w.settle()
	if a := w.ask(w.URL+"/", "one", 0); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	addr := strings.TrimPrefix(w.URL, "http://")
	var idle []net.Conn
	for range 2 * most {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err) // the backlog takes them
		}
		t.Cleanup(func() { conn.Close() })
		idle = append(idle, conn)
	}
	w.WaitForLog("cannot accept connections", nil)
	a := w.askMany(20, 1, func() answer { return w.ask(w.URL+"/", "one", 0) }) // over the connection from before
	row(t, "descriptors", fmt.Sprintf("%d of %d connections accepted", most, 2*most), "over a connection from before: ", a)
	if !a.only(200) {
		t.Errorf("over a connection from before: %v", a)
	}
	for _, conn := range idle {
		conn.Close()
	}
	await.Until(t, "new connections are accepted", func() bool {
		w.client.CloseIdleConnections()
		return w.ask(w.URL+"/", "one", 0).status == http.StatusOK
	})
	w.wantNoLeak()
}

// With the memory limit that Weir sets itself in a container of 64 MB, new keys, bodies and
// connections stay within it. Pages of the program file are not counted: the kernel drops
// them when a container is full.
func TestMemory_64MB(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	w := start(t, fmt.Sprintf(`
upstreams: {api: {targets: ["http://%s"]}}
routes:
  - {name: all, match: {path: /*}, upstream: api, body: {max: 64KiB}, limits: [{key: "header:X-Key", rate: 5/1h}, {key: {from: "json:/b", on_missing: skip}, rate: 100/1h}]}
`, startUpstream(t)), fmt.Sprintf("export GOMEMLIMIT=%d", limit/10*9))
	for range 50 { // idle beside
		sockettest.Dial(t, strings.TrimPrefix(w.URL, "http://"), "")
	}
	rounds := 10
	if all() {
		rounds = 200
	}
	const requests = 500
	var most atomic.Int64
	var last answers
	var key atomic.Int64
	for range rounds {
		last = w.askMany(requests, 50, func() answer {
			n := int(key.Add(1))
			if n%100 == 0 {
				most.Store(max(most.Load(), anonymous(t, w.PID())))
			}
			return w.ask(w.URL+"/", fmt.Sprintf("key %d", n), n%10*5_000)
		})
		if !last.only(200) || last.failed > 0 {
			t.Fatalf("%v; want 200", last)
		}
	}
	row(t, "memory", "GOMEMLIMIT of a container of 64 MB", fmt.Sprintf("%d keys, bodies of up to 45 KB, 100 connections: all 200; at most %d MB", rounds*requests, most.Load()>>20))
	if most.Load() > limit {
		t.Errorf("%d MB were resident", most.Load()>>20)
	}
}

// anonymous is how much memory of a process is resident and not that of files.
func anonymous(t *testing.T, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	var kB int64
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Error(err)
	}
	return kB << 10
}
