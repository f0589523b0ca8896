package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/sockettest"
)

// listen is the beginning of a file that listens on free ports.
const listen = "listen: {http: '127.0.0.1:0', drain: {delay: 300ms}}\nadmin: {http: '127.0.0.1:0'}\n"

// postStatus is how the admin API answers a POST.
func postStatus(t *testing.T, n *testNode, path string) int {
	t.Helper()
	answer, err := http.Post("http://"+n.Address("admin")+path, "", nil)
	check(t, err)
	answer.Body.Close()
	return answer.StatusCode
}

func TestReload_ByTheAdminAPI(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	for _, row := range []struct {
		text, served string
		status       int
	}{
		{listen + respondYAML("2"), "2", 200},
		{"routes: nonsense\n", "2", 422},
		{strings.Replace(listen, "listen: {", "listen: {max_header: 9KiB, ", 1) + respondYAML("3"), "2", 409}, // needs a restart
		{listen + respondYAML("4"), "4", 200},
	} {
		replaceFile(t, n.source.path, row.text)
		if got := postStatus(t, n, "/reload"); got != row.status {
			t.Errorf("reload of %q = %d; want %d", row.text, got, row.status)
		}
		if got := fetch(t, "http://"+n.Address("http")+"/a"); got != row.served {
			t.Errorf("after %q %q is served; want %q", row.text, got, row.served)
		}
	}
}

// What is odd about a configuration, and no fault, is said at the start and at each
// reload.
func TestReload_WarningsAreLogged(t *testing.T) {
	const odd = "routes:\n  - {name: send, match: {path: /a}, upstream: echo, limits: [{key: client_ip, rate: %s}]}\n  - {name: rest, match: {path: /*}, upstream: echo}\n"
	n := mustStart(t, write(t, listen+fmt.Sprintf(odd, "1/1m")))
	if got := n.waitForLog("config warning"); !strings.Contains(fmt.Sprint(got["field"], got["problem"]), "routes[1]") || !strings.HasSuffix(fmt.Sprint(got["at"]), ":5:32") || strings.Contains(fmt.Sprint(got["problem"]), ":5:32") {
		t.Errorf("the log says %v; want which route, and where, once", got)
	}
	replaceFile(t, n.source.path, listen+fmt.Sprintf(odd, "2/1m"))
	if got := postStatus(t, n, "/reload"); got != 200 {
		t.Fatalf("reload = %d", got)
	}
	await.Until(t, "a second warning", func() bool { return strings.Count(n.log.String(), `"config warning"`) == 2 }, n.log)
}

// While it drains a node is not ready, says so, and serves on until the delay is over.
func TestDrain_ServesUntilTheDelayIsOver(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	ended := make(chan error, 1)
	go func() { ended <- n.end() }()
	n.waitForLog("draining")
	answer := get(t, "http://"+n.Address("http")+"/a")
	if answer.StatusCode != 200 || !answer.Close {
		t.Errorf("while it drains: %d, close %v; want an answer that ends its connection", answer.StatusCode, answer.Close)
	}
	answer = get(t, "http://"+n.Address("admin")+"/readyz")
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz while it drains = %d; want 503", answer.StatusCode)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n.findLog("drained") == nil {
		t.Errorf("log:\n%s", n.log)
	}
}

// Other proxies that ask are told of the end when clients are, whatever requests of clients are still in progress.
func TestDrain_OtherProxiesAreToldOfTheEnd(t *testing.T) {
	upstream := sockettest.Listen(t)
	n := mustStart(t, write(t, "listen: {http: '127.0.0.1:0', decide: {http: '127.0.0.1:0', dialect: traefik}}\nadmin: {http: '127.0.0.1:0'}\n"+
		"routes: [{name: a, match: {path: /a}, upstream: 'http://"+upstream.Addr().String()+"', limits: [{name: l, key: global, rate: 1000/1s}]}]\n"))
	client := sockettest.Dial(t, n.Address("http"), "GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
	slow, err := upstream.Accept()
	check(t, err)
	const question = "GET /decide HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /a\r\nX-Forwarded-Host: a\r\nX-Forwarded-Proto: http\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n"
	peer := sockettest.Dial(t, n.Address("decide"), question)
	if answer, _ := peer.WantStatus(200); answer.Close {
		t.Error("the connection ends before it drains")
	}
	ended := make(chan error, 1)
	go func() { ended <- n.end() }()
	n.waitForLog("draining")
	peer.Send(question)
	if answer, _ := peer.WantStatus(200); !answer.Close {
		t.Error("while it drains the last answer does not say so")
	}
	await.Until(t, "no further connection is accepted", func() bool {
		c, err := net.Dial("tcp", n.Address("decide"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	fmt.Fprint(slow, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	client.WantStatus(200)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Parts close in the opposite order to that in which they need each other.
func TestNode_CloseOrder(t *testing.T) {
	n := mustStart(t, write(t, listen+respondYAML("1")))
	var names []string
	for _, c := range n.closers.stack {
		names = append(names, c.name)
	}
	slices.Reverse(names)
	want := []string{"leadership", "requests", "cluster membership", "tasks", "http listener", "admin listener", "proxy", "audit", "statistics", "store"}
	if !slices.Equal(names, want) {
		t.Errorf("closes %q; want %q", names, want)
	}
	if at := slices.Index(names, "requests"); n.closers.stack[len(names)-1-at].timeout < n.drains.Delay+n.drains.Within {
		t.Error("requests have less time than the configuration gives them")
	}
}

func TestAdmin_IsOpenToWhomTheConfigurationSays(t *testing.T) {
	n := mustStart(t, write(t, strings.Replace(listen, "admin: {", "admin: {token: 'sixteen characters', ", 1)+respondYAML("1")))
	if got := postStatus(t, n, "/reload"); got != http.StatusUnauthorized {
		t.Errorf("reload without the token = %d; want 401", got)
	}
	client := admin.Client{Address: n.Address("admin"), Token: "sixteen characters"}
	if _, err := admin.Get[admin.History](t.Context(), client, "/history"); err == nil || !strings.Contains(err.Error(), "serves its own file") {
		t.Errorf("history with the token: %v; want that nothing can be pushed here", err)
	}
}

// watchFiles watches the files of a configuration until the test ends, and returns where
// their changes arrive.
func watchFiles(t *testing.T, path string) <-chan struct{} {
	t.Helper()
	c, err := config.Load(path)
	check(t, err)
	files := func(w *fsnotify.Watcher) []string { return configFiles(w, c) }
	changes := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := watch(ctx, files, func(context.Context) { changes <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	wantChange(t, changes, "a first look")
	return changes
}

// Files are read once they have settled: what is written all the time with the second check, and what no event tells of after the first.
func TestWhenSettled(t *testing.T) {
	for what, row := range map[string]struct {
		every, until, read time.Duration
	}{
		"one write":       {130 * time.Millisecond, 130 * time.Millisecond, 280 * time.Millisecond},
		"several writes":  {130 * time.Millisecond, 650 * time.Millisecond, 800 * time.Millisecond},
		"a writer":        {130 * time.Millisecond, time.Hour, time.Minute},
		"a slower writer": {170 * time.Millisecond, time.Hour, 320 * time.Millisecond},
		"no event":        {time.Hour, 0, 30*time.Second + 150*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var both sync.WaitGroup
			defer func() { cancel(); both.Wait() }()
			w, changes := &fsnotify.Watcher{Events: make(chan fsnotify.Event)}, make(chan time.Duration)
			var content atomic.Int32
			began := time.Now()
			look := func() ([sha256.Size]byte, map[string]bool) {
				return [sha256.Size]byte{1, byte(content.Load())}, map[string]bool{"list": true}
			}
			both.Go(func() { whenSettled(ctx, w, look, func(context.Context) { changes <- time.Since(began) }) })
			<-changes // the first look
			content.Store(1)
			both.Go(func() {
				for written := row.every; written <= row.until && ctx.Err() == nil; written += row.every {
					time.Sleep(row.every) // virtual
					select {
					case w.Events <- fsnotify.Event{Name: "list", Op: fsnotify.Write}:
					case <-ctx.Done():
					}
				}
			})
			if got := <-changes; got != row.read {
				t.Errorf("%s: read after %v; want %v", what, got, row.read)
			}
		})
	}
}

func wantChange(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	await.Value(t, changes, "change after "+what)
}

// respondYAML is a configuration that answers with body.
func respondYAML(body string) string {
	return "routes: [{match: {path: /a}, respond: {body: '" + body + "'}}]\n"
}

// replaceFile writes other text into a file.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestWatch_EditorsReplaceTheFile(t *testing.T) {
	path := write(t, respondYAML("1"))
	changes := watchFiles(t, path)
	for _, body := range []string{"2", "3"} {
		rewrite(t, path, respondYAML(body))
		wantChange(t, changes, "a rename")
	}
	replaceFile(t, path, respondYAML("4"))
	wantChange(t, changes, "a write")
}

// A file that is written all the time beside the configuration, such as a log, does not hold up its reload.
func TestWatch_IsNotHeldUpByOtherFiles(t *testing.T) {
	path := write(t, respondYAML("1"))
	log, err := os.Create(filepath.Join(filepath.Dir(path), "access.log"))
	check(t, err)
	defer log.Close()
	changes := watchFiles(t, path)
	var writing sync.WaitGroup
	var done atomic.Bool
	writing.Go(func() {
		for !done.Load() {
			fmt.Fprintln(log, "a request")
			log.Truncate(0)
			runtime.Gosched()
		}
	})
	defer writing.Wait()
	defer done.Store(true)
	rewrite(t, path, respondYAML("2"))
	select {
	case <-changes:
	case <-time.After(rescanInterval / 2):
		t.Error("the change is not seen while another file is written")
	}
}

func TestWatch_KubernetesSwapsALink(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, yaml string) {
		t.Helper()
		data := filepath.Join(dir, "..data")
		err := errors.Join(
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "weir.yaml"), []byte(yaml), 0o600),
			os.Symlink(version, data+"_tmp"),
			os.Rename(data+"_tmp", data),
		)
		check(t, err)
	}
	publish("..1", respondYAML("1"))
	path := filepath.Join(dir, "weir.yaml")
	check(t, os.Symlink("..data/weir.yaml", path))
	changes := watchFiles(t, path)
	for i, version := range []string{"..2", "..3"} {
		publish(version, respondYAML([]string{"2", "3"}[i]))
		wantChange(t, changes, "a swapped link")
	}
}

func TestWatch_SeesNewIncludedFiles(t *testing.T) {
	path := write(t, "include: [more/*.yaml]\n"+respondYAML("1"))
	more := filepath.Join(filepath.Dir(path), "more")
	check(t, os.Mkdir(more, 0o700))
	changes := watchFiles(t, path)
	replaceFile(t, filepath.Join(more, "b.yaml"), "keys: {b: {from: global}}\n")
	wantChange(t, changes, "a new included file")
}

// The file of a list belongs to the configuration.
func TestWatch_SeesFilesOfLists(t *testing.T) {
	path := write(t, "lists: {testers: {key: 'header:X-Phone', file: testers.txt, action: bypass}}\n"+
		"routes: [{match: {path: /a}, upstream: echo, lists: [testers]}]\n")
	file := filepath.Join(filepath.Dir(path), "testers.txt")
	replaceFile(t, file, "1\n")
	changes := watchFiles(t, path)
	replaceFile(t, file, "2\n")
	wantChange(t, changes, "a change of the list's file")
}

// A reload that waits for other nodes for too long is not given up.
func TestReload_WaitsUntilOtherNodesAreDone(t *testing.T) {
	busy := fmt.Errorf("agree on config: %w", cluster.ErrBusy)
	for name, c := range map[string]struct {
		results []error
		calls   int
	}{
		"at once":             {[]error{nil, nil}, 1},
		"others are at it":    {[]error{busy, busy, nil, nil}, 3},
		"it is refused":       {[]error{busy, errors.New("a file that is not valid"), nil}, 2},
		"the node has closed": {[]error{busy, busy, context.Canceled, busy}, 3},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		untilFree(ctx, func(context.Context) error {
			calls++
			if err := c.results[calls-1]; err != context.Canceled {
				return err
			}
			cancel()
			return busy
		})
		if cancel(); calls != c.calls {
			t.Errorf("%s: %d calls, want %d", name, calls, c.calls)
		}
	}
}

// A node reloads by itself when its file changes.
func TestNode_ReloadsWhenItsFileChanges(t *testing.T) {
	listen := "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n"
	n := mustStart(t, write(t, listen+respondYAML("1")))
	rewrite(t, n.source.path, listen+respondYAML("2"))
	n.waitForLog("reloaded")
	if got := fetch(t, "http://"+n.Address("http")+"/a"); got != "2" {
		t.Errorf("serves %q", got)
	}
}

// A mistake in a file that the served configuration does not have yet is mended in that file, and one that is missing is made.
func TestNode_ReloadsWhenAFileOfARefusedConfigurationChanges(t *testing.T) {
	for name, mistake := range map[string]string{"a mistake": "keyz: {}\n", "no file": ""} {
		t.Run(name, func(t *testing.T) {
			n := mustStart(t, write(t, listen+respondYAML("1")))
			part := filepath.Join(filepath.Dir(n.source.path), "part.yaml")
			if mistake != "" {
				replaceFile(t, part, mistake)
			}
			rewrite(t, n.source.path, listen+"include: [part.yaml]\n"+respondYAML("2"))
			n.waitForLog("reload refused")
			replaceFile(t, part, "keys: {a: {from: global}}\n")
			n.waitForLog("reloaded")
			if got := fetch(t, "http://"+n.Address("http")+"/a"); got != "2" {
				t.Errorf("serves %q", got)
			}
		})
	}
}

func TestMounted_IsAFileThatIsAMount(t *testing.T) {
	const mounts = `24 30 0:22 / /proc rw,nosuid - proc proc rw
611 590 8:1 /srv/weir.yaml /etc/weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
612 590 8:1 /srv/a /etc/my\040weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
613 590 8:1 /srv/dir /etc/folder ro,relatime - ext4 /dev/sda1 rw
`
	for path, want := range map[string]bool{
		"/etc/weir/weir.yaml": true, "/etc/weir/../weir/weir.yaml": true, "/etc/my weir/weir.yaml": true,
		"/etc/folder/weir.yaml": false, "/etc/weir/other.yaml": false, "weir.yaml": false,
	} {
		if got := isMountPoint(path, strings.NewReader(mounts)); got != want {
			t.Errorf("%s: %v; want %v", path, got, want)
		}
	}
}

// Of two reloads at once, as of a file and of SIGHUP, the status is that of the one that was second.
func TestReload_StatusIsOfTheLast(t *testing.T) {
	c, err := config.Load(writeConfig(t, ""))
	check(t, err)
	log := NewLog(io.Discard, zerolog.Disabled)
	defer log.Close()
	loads, refused := 0, errors.New("refused")
	n, err := Start(t.Context(), Options{Path: c.Files[0], Config: c, Log: log, Load: func() (*config.Config, error) { // one at a time
		if loads++; loads%2 == 0 {
			return nil, refused
		}
		return c, nil
	}})
	check(t, err)
	defer n.Close()
	for round := range rounds.Of(20_000) {
		var both sync.WaitGroup
		for range 4 + round%2 {
			both.Go(func() { _ = n.Reload(t.Context()) })
		}
		both.Wait()
		n.reloads.one.Lock() // the watcher may reload too
		if got := n.reloads.status(1); (got == "ok") != (loads%2 == 1) {
			t.Fatalf("after %d reloads %q", loads, got)
		}
		n.reloads.one.Unlock()
	}
}

// A program that writes a file begins by emptying it, and one that replaces a directory by removing it: until it is done, what was there holds.
func TestReload_AFileThatHasLostAllIsStillBeingWritten(t *testing.T) {
	dir := t.TempDir()
	list, parts := filepath.Join(dir, "stolen.txt"), filepath.Join(dir, "parts")
	part := filepath.Join(parts, "a.yaml")
	restore := func() {
		os.Mkdir(parts, 0o755)
		replaceFile(t, list, "bad\n")
		replaceFile(t, part, "routes: [{match: {path: /b}, respond: {status: 204}}]\n")
	}
	restore()
	main := filepath.Join(dir, "weir.yaml")
	replaceFile(t, main, listen+"include: parts/*.yaml\nlists: {stolen: {key: 'query:k', file: stolen.txt, action: deny}}\n"+
		"routes: [{match: {path: /a}, respond: {status: 200}, lists: [stolen]}]\n")
	n := mustStart(t, main)
	for _, row := range []struct {
		what   string
		change func()
		reload int
		a, b   int
	}{
		{"nothing", func() {}, 200, 403, 204},
		{"an emptied list", func() { replaceFile(t, list, "") }, 422, 403, 204},
		{"a list of blanks", func() { replaceFile(t, list, "\n \n") }, 422, 403, 204},
		{"a list without values, and why", func() { replaceFile(t, list, "# none at present\n") }, 200, 200, 204},
		{"a list that ends within a line", func() { replaceFile(t, list, "bad\nwor") }, 422, 403, 204},
		{"an emptied directory", func() { os.Remove(part) }, 422, 403, 204},
		{"a removed directory", func() { os.RemoveAll(parts) }, 422, 403, 204},
		{"one more file", func() { replaceFile(t, filepath.Join(parts, "b.yaml"), "routes: []\n") }, 200, 403, 204},
		{"one file less", func() { os.Remove(part) }, 200, 403, 404},
	} {
		row.change()
		if got := postStatus(t, n, "/reload"); got != row.reload {
			t.Errorf("%s: reload = %d; want %d", row.what, got, row.reload)
		}
		at := "http://" + n.Address("http")
		if a, b := get(t, at+"/a?k=bad").StatusCode, get(t, at+"/b").StatusCode; a != row.a || b != row.b {
			t.Errorf("%s: %d and %d; want %d and %d", row.what, a, b, row.a, row.b)
		}
		if row.what != "one more file" {
			restore()
			postStatus(t, n, "/reload")
		}
	}
	if strings.Contains(n.log.String(), `"line":0`) {
		t.Errorf("what is about a whole file is logged with a line:\n%s", n.log)
	}
}
