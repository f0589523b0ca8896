package test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// followerYAML is the configuration of a node that serves what is pushed.
func followerYAML(addr string) string {
	return redisYAML(addr) + "reload: {source: redis}\n" + revisionYAML(0)
}

// revisionYAML is a configuration of which three parts of each answer tell the number.
func revisionYAML(n int) string {
	return fmt.Sprintf(`routes:
  - name: revision
    match: {path: /revision}
    respond: {body: "%d", headers: {X-Revision: "%d"}}
    limits: [{name: all, key: "header:X-Phone", rate: %d/1h}]
`, n, n, 1_000_000+n)
}

// startFollowers starts n nodes that serve what is pushed, and waits until they know each
// other.
func startFollowers(t *testing.T, addr string, n int) []*weir {
	t.Helper()
	var nodes []*weir
	for range n {
		nodes = append(nodes, start(t, followerYAML(addr)))
	}
	waitForNodes(t, addr, n)
	return nodes
}

// servedRevision is what the node serves: the number that all parts of one answer tell.
func (w *weir) servedRevision() string {
	w.t.Helper()
	status, header, body := exchange(w.t, http.MethodGet, w.URL+"/revision", http.Header{"X-Phone": {"p"}})
	policy := header.Get("Ratelimit-Policy")
	if status != http.StatusOK || header.Get("X-Revision") != body || !strings.HasPrefix(policy, fmt.Sprintf(`"all";q=%s;`, limitCount(body))) {
		w.t.Errorf("answer of several revisions: %d %q %q %q", status, body, header.Get("X-Revision"), policy)
	}
	return body
}

// limitCount is the count of the limit in an revision.
func limitCount(revision string) string {
	var n int
	fmt.Sscan(revision, &n)
	return fmt.Sprint(1_000_000 + n)
}

// push has the cluster serve that text, through w.
func (w *weir) push(text, author string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	dir := w.t.TempDir()
	write(w.t, filepath.Join(dir, "next.yaml"), text)
	return w.admin(dir, append([]string{"push", "next.yaml", "--author", author}, args...)...)
}

// admin runs a command of weir's in dir that asks w.
func (w *weir) admin(dir string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	return command(w.t, dir, append(args, "--admin", w.Admin)...)
}

// allServe waits until all nodes serve that revision.
func allServe(t *testing.T, nodes []*weir, n int) {
	t.Helper()
	for i, w := range nodes {
		await.Until(t, fmt.Sprintf("node %d serves revision %d", i, n), func() bool { return w.servedRevision() == fmt.Sprint(n) })
	}
}

// Every answer is of one revision, and no client sees an older one after a newer.
func TestPush_UnderLoadToFiveNodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 5)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var answers atomic.Int64
	for _, w := range nodes {
		clients.Go(func() {
			client := &http.Client{Timeout: testTimeout}
			defer client.CloseIdleConnections()
			for last := 0; ; answers.Add(1) {
				select {
				case <-stop:
					return
				default:
				}
				last = wantWhole(t, client, w.URL+"/revision", last)
			}
		})
	}
	t.Cleanup(func() { // also when the test fails
		select {
		case <-stop:
		default:
			close(stop)
		}
		clients.Wait()
	})
	for n := 1; n <= 3; n++ {
		goal := answers.Load() + 50
		await.Until(t, "the load goes on", func() bool { return answers.Load() >= goal })
		code, stdout, stderr := nodes[n].push(revisionYAML(n), "ann")
		if code != 0 || !strings.Contains(stdout, "served by 5 of 5 nodes") {
			t.Fatalf("push %d exits %d: %s%s", n, code, stdout, stderr)
		}
		for i, w := range nodes { // at once: the command has waited for it
			if got := w.servedRevision(); got != fmt.Sprint(n) {
				t.Errorf("after push %d node %d serves %s", n, i, got)
			}
		}
	}
	first := nodes[0].generation()
	for i, w := range nodes {
		if got := w.generation(); got != first {
			t.Errorf("node %d calls it generation %d, node 0 %d", i, got, first)
		}
	}
	close(stop)
	clients.Wait()
}

// wantWhole sends one request and returns the revision of its answer, which must
// be whole and no older than last.
func wantWhole(t *testing.T, client *http.Client, url string, last int) int {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return last
	}
	req.Header.Set("X-Phone", "p")
	res, err := client.Do(req)
	if err != nil {
		t.Errorf("a request failed: %v", err)
		return last
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	var n int
	fmt.Sscan(string(body), &n)
	if header, policy := res.Header.Get("X-Revision"), res.Header.Get("Ratelimit-Policy"); err != nil || res.StatusCode != http.StatusOK ||
		header != string(body) || !strings.HasPrefix(policy, fmt.Sprintf(`"all";q=%d;`, 1_000_000+n)) {
		t.Errorf("an answer of several revisions: %d %q, %q, %q, %v", res.StatusCode, body, header, policy, err)
	}
	if n < last {
		t.Errorf("revision %d after %d", n, last)
	}
	return n
}

// One node that could not serve it is enough, and says why.
func TestPush_RefusedByOneNode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 3)
	for _, w := range nodes[:2] {
		writeCertificate(t, w.Dir)
	}
	text := "upstreams: {s: {targets: [\"https://127.0.0.1:1\"], tls: {ca: cert.pem}}}\n" + revisionYAML(1) + "  - {match: {path: /s}, upstream: s}\n"
	for _, dry := range [][]string{{"--dry-run"}, nil} {
		code, stdout, stderr := nodes[0].push(text, "ann", dry...)
		if code != 1 || strings.Count(stdout, "\"cert.pem\" cannot be read") != 1 {
			t.Errorf("push exits %d: %s%s; want the one node that lacks cert.pem", code, stdout, stderr)
		}
	}
	allServe(t, nodes, 0)
	writeCertificate(t, nodes[2].Dir)
	if code, stdout, stderr := nodes[0].push(text, "ann", "--dry-run"); code != 0 || !strings.Contains(stdout, "3 of 3 nodes could serve this") {
		t.Errorf("dry run exits %d: %s%s", code, stdout, stderr)
	}
	allServe(t, nodes, 0)
	if code, stdout, stderr := nodes[0].push(text, "ann"); code != 0 {
		t.Errorf("push exits %d: %s%s", code, stdout, stderr)
	}
	allServe(t, nodes, 1)
}

// A node that cannot be reached, and one that was ended, serve what was pushed
// meanwhile as soon as they are back.
func TestPush_NodesThatWereAwayCatchUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewFaultProxy(t, server.Addr)
	nodes := startFollowers(t, server.Addr, 2)
	cut := start(t, followerYAML(p.Addr))
	nodes[1].Signal(syscall.SIGTERM)
	nodes[1].Exit()
	p.Redirect("127.0.0.1:1")
	began := time.Now()
	code, stdout, stderr := nodes[0].push(revisionYAML(1), "ann") // waits until the one is no longer among those that live
	if code != 0 || !strings.Contains(stdout, "1 of 1 nodes") {
		t.Fatalf("push exits %d after %v: %s%s", code, time.Since(began), stdout, stderr)
	}
	if got := cut.servedRevision(); got != "0" {
		t.Errorf("the node that is cut off serves %s", got)
	}
	p.Redirect(server.Addr)
	allServe(t, []*weir{cut}, 1)
	back := startWith(t, nodes[1].Dir, "-c", nodes[1].File)
	if got := back.servedRevision(); got != "1" {
		t.Errorf("the node that starts again serves %s first", got)
	}
	if got, want := back.generation(), nodes[0].generation(); got != want {
		t.Errorf("it calls it generation %d, the others %d", got, want)
	}
}

// After Redis came back empty a push of what is served is there again, with its
// history, and generations go on from where they were.
func TestPush_AfterRedisCameBackEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 2)
	for n := 1; n <= 3; n++ {
		if code, stdout, stderr := nodes[0].push(revisionYAML(n), "ann"); code != 0 {
			t.Fatalf("push %d exits %d: %s%s", n, code, stdout, stderr)
		}
	}
	allServe(t, nodes, 3)
	before := nodes[0].generation()
	dir := t.TempDir()
	if err := redisClient(t, server.Addr).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := nodes[1].push(revisionYAML(3), "bob"); code != 0 || !strings.Contains(stdout, fmt.Sprintf("generation %d is", before)) {
		t.Errorf("the same push exits %d: %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := nodes[1].admin(dir, "history"); code != 0 || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, fmt.Sprintf("%d  ", before)) {
		t.Errorf("history exits %d: %s%s; want what was pushed, three times", code, stdout, stderr)
	}
	late := start(t, followerYAML(server.Addr))
	await.Until(t, "a node that comes later serves it", func() bool { return late.servedRevision() == "3" })
	waitForNodes(t, server.Addr, 3) // who is alive was lost as well, until the next heartbeats
	if code, stdout, stderr := late.push(revisionYAML(4), "eve"); code != 0 || !strings.Contains(stdout, fmt.Sprintf("generation %d is served by 3 of 3 nodes", before+1)) {
		t.Errorf("the next push exits %d: %s%s; want a higher generation", code, stdout, stderr)
	}
}

// Values of sensitive keys in lists and overrides are not told by pushes, history and plans; a push says where they can be
// read.
func TestPush_ShowsNoValues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, followerYAML(server.Addr))
	text := "keys: {phone: {from: \"header:X-Phone\", normalize: digits, sensitive: true}}\nlists:\n  stolen: {key: phone, values: [\"+1 555 0100\"], action: deny}\n" +
		strings.Replace(revisionYAML(1), "    limits: [", "    lists: [stolen]\n    limits: [{key: phone, rate: 1/1h, overrides: {\"+1 555 0102\": 2/1h}}, ", 1)
	code, stdout, stderr := w.push(text, "ann")
	if code != 0 || strings.Contains(stdout, "0100") || strings.Contains(stdout, "0102") || !strings.Contains(stdout, "can read the values of sensitive keys in next.yaml;") {
		t.Fatalf("push exits %d: %s%s; want that the values are not told, and where they can be read", code, stdout, stderr)
	}
	for _, c := range []struct {
		phone string
		want  int
	}{
		{"+1-555-0100", http.StatusForbidden}, {"+1-555-0101", http.StatusOK}, {"+1-555-0101", http.StatusTooManyRequests},
		{"+1-555-0102", http.StatusOK}, {"+1-555-0102", http.StatusOK}, {"+1-555-0102", http.StatusTooManyRequests},
	} {
		if status, _, _ := exchange(t, http.MethodGet, w.URL+"/revision", http.Header{"X-Phone": {c.phone}}); status != c.want {
			t.Errorf("%s is answered with %d; want %d", c.phone, status, c.want)
		}
	}
	if code, stdout, stderr := w.admin(t.TempDir(), "history", fmt.Sprint(w.generation())); code != 0 || strings.Contains(stdout, "0100") || strings.Contains(stdout, "0102") || strings.Count(stdout, "+(not shown, ") != 2 {
		t.Errorf("history exits %d: %s%s; want two lines that are not shown", code, stdout, stderr)
	}
	if code, stdout, _ := w.push(text, "bob"); code != 0 || !strings.Contains(stdout, "is this already") {
		t.Errorf("the same once more exits %d: %s; want that nothing changes", code, stdout)
	}
}
