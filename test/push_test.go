package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
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

// runs runs a command that asks w, which must exit with that code and say words: as its error, if there is one.
func (w *weir) runs(code int, words string, args ...string) (stdout string) {
	w.t.Helper()
	got, stdout, stderr := w.admin(w.t.TempDir(), args...)
	said := stdout
	if code != 0 {
		said = stderr
	}
	if got != code || !strings.Contains(said, words) {
		w.t.Errorf("weir %q exits %d: %s%s; want %d and %q", args, got, stdout, stderr, code, words)
	}
	return stdout
}

// pushes is runs for a push of text.
func (w *weir) pushes(code int, words, text, author string) (stdout string) {
	w.t.Helper()
	return w.runs(code, words, "push", weirtest.Write(w.t, text), "--author", author)
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
	nodes := startFollowers(t, redistest.Start(t).Addr, 5)
	var answers atomic.Int64
	last := make([]int, len(nodes))
	stop := keepAsking(t, len(nodes), time.Millisecond, func(i int, c *http.Client) {
		last[i] = wantWhole(t, c, nodes[i].URL+"/revision", last[i])
		answers.Add(1)
	})
	for n := 1; n <= 3; n++ {
		goal := answers.Load() + 50
		await.Until(t, "the load goes on", func() bool { return answers.Load() >= goal })
		nodes[n].pushes(0, "served by 5 of 5 nodes", revisionYAML(n), "ann")
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
	stop()
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
	nodes[0].pushes(0, "1 of 1 nodes", revisionYAML(1), "ann") // waits until the one is no longer among those that live
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
	w.pushes(0, "is this already", text, "bob")
}

// An interruptedPush is a push whose node, which is killed, reaches Redis through a
// proxy, while others reach it at once.
type interruptedPush struct {
	server *redistest.Server
	proxy  *redistest.FaultProxy
	pusher *weir
	others []*weir
}

// Whatever a pusher was doing when it was killed, all others serve one revision,
// and the next push is served by all.
func TestPush_KilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name   string
		killed func(t *testing.T, p interruptedPush)
		serves int // what the others are left with
	}{
		{"before all have answered", func(t *testing.T, p interruptedPush) {
			p.others[0].Signal(syscall.SIGSTOP)
			go p.pusher.pushIgnored(revisionYAML(1))
			underWay(t, p.server.Addr)
			p.pusher.Kill()
			p.others[0].Signal(syscall.SIGCONT)
		}, 0},
		{"when it could decide", func(t *testing.T, p interruptedPush) {
			go p.pusher.pushIgnored(revisionYAML(1))
			underWay(t, p.server.Addr)
			c := redisClient(t, p.server.Addr)
			p.proxy.Hold() // what it does from here on it hears nothing of
			await.Until(t, "the others have answered, or it is decided", func() bool {
				push := c.HGetAll(t.Context(), "weir:{cluster}:push").Val()
				return len(push) >= 6+2 || len(push) == 0
			})
			p.pusher.Kill()
		}, -1},
		{"when it has decided", func(t *testing.T, p interruptedPush) {
			p.pusher.pushIgnored(revisionYAML(0)) // now Redis knows the script that decides
			p.proxy.Lose("weir:{cluster}:history\r\n$20\r\nweir:{cluster}:nodes")
			go p.pusher.pushIgnored(revisionYAML(1))
			await.Until(t, "the decision is lost on its way back", func() bool { return p.proxy.Lost() > 0 })
			p.pusher.Kill()
		}, 1},
		{"while it waits for all to serve it", func(t *testing.T, p interruptedPush) {
			c := redisClient(t, p.server.Addr)
			before := c.HGet(t.Context(), "weir:{cluster}:config", "number").Val()
			go p.pusher.pushIgnored(revisionYAML(1))
			await.Until(t, "it is decided", func() bool {
				return c.HGet(t.Context(), "weir:{cluster}:config", "number").Val() != before
			})
			p.pusher.Kill()
		}, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewFaultProxy(t, server.Addr)
			pusher := start(t, followerYAML(p.Addr))
			others := []*weir{start(t, followerYAML(server.Addr)), start(t, followerYAML(server.Addr))}
			waitForNodes(t, server.Addr, 3)
			step.killed(t, interruptedPush{server, p, pusher, others})
			c := redisClient(t, server.Addr)
			// It is forgotten as a node, and so is what it did not decide.
			await.Within(t, 2*testTimeout, "the push is over", func() bool {
				return c.Exists(t.Context(), "weir:{cluster}:push").Val() == 0 && len(heartbeats(t, c)) == 2
			})
			want := step.serves
			if want < 0 {
				fmt.Sscan(others[0].servedRevision(), &want)
			}
			allServe(t, others, want)
			p.Release()
			back := startWith(t, pusher.Dir, "-c", pusher.File)
			allServe(t, []*weir{back}, want)
			others = append(others, back)
			code, stdout, stderr := others[1].push(revisionYAML(7), "ann")
			if code != 0 {
				t.Errorf("the next push exits %d: %s%s", code, stdout, stderr)
			}
			allServe(t, others, 7)
		})
	}
}

// pushIgnored asks w to push, again as long as Redis does not answer it in time, and does not care what else comes of it.
func (w *weir) pushIgnored(text string) {
	body, _ := json.Marshal(map[string]any{"author": "bob", "bundle": map[string]any{"main": "a.yaml", "files": map[string]string{"a.yaml": text}}})
	for status := http.StatusServiceUnavailable; status == http.StatusServiceUnavailable; {
		res, err := http.Post(w.Admin+"/api/v1/push", "application/json", strings.NewReader(string(body)))
		if err != nil {
			return
		}
		res.Body.Close()
		status = res.StatusCode
	}
}

// underWay waits until a push is.
func underWay(t *testing.T, addr string) {
	t.Helper()
	c := redisClient(t, addr)
	await.Until(t, "a push is under way", func() bool {
		return c.Exists(t.Context(), "weir:{cluster}:push").Val() == 1
	})
}
