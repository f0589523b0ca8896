package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
)

// reloadYAML is a configuration with an SMS route at that rate, and a route for load.
func reloadYAML(rate string) string {
	return fmt.Sprintf(`upstreams: {demo: echo}
routes:
  - name: sms-send
    match: {path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rate: %s}
  - name: load
    match: {path: /load}
    upstream: demo
    limits:
      - {name: everybody, key: "header:X-Phone", rate: 1000000/1m}
`, rate)
}

// generation is the number of the configuration that is served.
func (w *weir) generation() int {
	w.t.Helper()
	return int(w.metric("weir_config_generation"))
}

func TestReload_UnderLoad(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			head := ""
			if store == "redis" {
				head = redisYAML(redistest.Start(t).Addr)
			}
			w := start(t, head+reloadYAML("1/60s"))
			l := startLoad(t, 8, loadRequest{w.URL + "/load", newPhones("load")})
			if got := w.statuses("used", 2); got[0] != 200 || got[1] != 429 {
				t.Fatalf("before the edit the answers are %v, want 200 and 429", got)
			}
			l.waitForMore(t, 100)
			before := w.generation()

			w.edit(head + reloadYAML("3/60s"))
			await.Until(t, "the edit is served", func() bool { return w.generation() > before })
			if got := w.statuses("used", 3); got[0] != 200 || got[1] != 200 || got[2] != 429 {
				t.Errorf("after one permit and the edit to 3/60s the answers are %v, want 200, 200, 429", got)
			}
			l.waitForMore(t, 100)

			served := w.generation()
			w.edit(head + reloadYAML("nonsense"))
			refused := w.WaitForLog("reload refused", nil)
			if refused.Text("file") == "" || refused.Text("line") == "" || refused.Text("column") == "" {
				t.Errorf("the log says %v, want file, line and column", refused)
			}
			wantRefusal(t, w)
			if got := w.send("used"); got != 429 {
				t.Errorf("after nonsense the used-up phone is answered %d, want 429 as before", got)
			}
			if got := w.statuses("other", 4); got[0] != 200 || got[1] != 200 || got[2] != 200 || got[3] != 429 {
				t.Errorf("after nonsense another phone is answered %v, want the old rule of 3/60s", got)
			}
			if got := w.generation(); got != served {
				t.Errorf("after nonsense generation %d is served, want %d", got, served)
			}
			if w.metric(`weir_reloads_total{result="refused"}`) < 1 {
				t.Errorf("the refused reload is not counted")
			}
			l.waitForMore(t, 100)
			l.stop()
			l.wantOnly(t, http.StatusOK)
		})
	}
}

// wantRefusal asks for a reload of a file that is wrong.
func wantRefusal(t *testing.T, w *weir) {
	t.Helper()
	status, body := w.reload()
	var problem struct {
		Status   int
		Detail   string
		Problems []string
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil || status != http.StatusUnprocessableEntity {
		t.Fatalf("POST /reload is answered %d %s, want 422 and a problem", status, body)
	}
	text, err := os.ReadFile(w.File)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "nonsense")
	line := 1 + strings.Count(before, "\n")
	column := len(before) - strings.LastIndex(before, "\n")
	want := fmt.Sprintf("%s:%d:%d: ", w.File, line, column)
	if len(problem.Problems) != 1 || !strings.HasPrefix(problem.Problems[0], want) || problem.Detail == "" || problem.Status != status {
		t.Errorf("POST /reload says %s, want one problem at %s", body, want)
	}
}

func TestReload_OnRequestSaysWhatIsServed(t *testing.T) {
	t.Parallel()
	w := start(t, reloadYAML("1/60s"))
	write(t, w.File, reloadYAML("2/60s")+weirtest.Listeners)
	status, body := w.reload()
	var answer struct{ Generation int }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.Generation != 2 {
		t.Fatalf("POST /reload is answered %d %s, want 200 and generation 2", status, body)
	}
	if got := w.statuses("p", 3); got[1] != 200 || got[2] != 429 {
		t.Errorf("after the reload the answers are %v, want the new rule of 2/60s at once", got)
	}
	if status, body := w.reload(); status != http.StatusOK || w.generation() != 2 {
		t.Errorf("a reload of the same file is answered %d %s and serves generation %d, want 200 and 2", status, body, w.generation())
	}
}

func TestReload_EditorsRenameIsSeen(t *testing.T) {
	t.Parallel()
	w := start(t, reloadYAML("1/60s"))
	for n := 2; n <= 4; n++ { // more than once: the first rename is the easy one
		next := filepath.Join(w.Dir, ".weir.yaml.swp")
		write(t, next, reloadYAML(fmt.Sprintf("%d/60s", n))+weirtest.Listeners)
		if err := os.Rename(next, w.File); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the renamed file is served", func() bool { return w.generation() == n })
	}
}

// A Kubernetes volume is changed by pointing a link at another folder.
func TestReload_SwappedLinkIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := func(n int) {
		folder := fmt.Sprintf("..2026_%d", n)
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, folder, "weir.yaml"), reloadYAML(fmt.Sprintf("%d/60s", n))+weirtest.Listeners)
		if err := os.Symlink(folder, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if n > 1 {
			os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", n-1)))
		}
	}
	volume(1)
	if err := os.Symlink(filepath.Join("..data", "weir.yaml"), filepath.Join(dir, "weir.yaml")); err != nil {
		t.Fatal(err)
	}
	w := startWith(t, dir, "-c", filepath.Join(dir, "weir.yaml"))
	for n := 2; n <= 4; n++ {
		volume(n)
		await.Until(t, "the swapped file is served", func() bool { return w.generation() == n })
	}
}

// Nothing changes in the file between the two refusals, so that only the signal
// can have caused the second.
func TestReload_OnSIGHUP(t *testing.T) {
	t.Parallel()
	w := start(t, reloadYAML("1/60s"))
	w.edit(reloadYAML("nonsense"))
	w.WaitForLog("reload refused", nil)
	said := w.log.Count("reload refused")
	w.Signal(syscall.SIGHUP)
	await.Until(t, "SIGHUP reloads", func() bool { return w.log.Count("reload refused") > said })
	if w.Ended() {
		t.Error("weir ended")
	}
}

// What a request began with is what it ends with: a request that is under way
// during a reload is forwarded and answered by the old rules.
func TestReload_LetsRequestsUnderWayEnd(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) { waitForRelease(r, release) })
	config := func(path string) string {
		return fmt.Sprintf("routes:\n  - {match: {path: %s}, upstream: %s}\n", path, api.URL)
	}
	w := start(t, config("/old"))
	answer := make(chan int, 1)
	go func() {
		status, _ := do(t, http.MethodPost, w.URL+"/old", nil)
		answer <- status
	}()
	await.Until(t, "the request is under way", func() bool { return api.hits() == 1 })
	w.edit(config("/new"))
	await.Until(t, "the edit is served", func() bool { return w.generation() == 2 })
	if status, _ := w.get(w.URL + "/old"); status != http.StatusNotFound {
		t.Errorf("the old route is answered %d after the reload, want 404", status)
	}
	close(release)
	select {
	case status := <-answer:
		if status != http.StatusOK {
			t.Errorf("the request under way is answered %d, want 200", status)
		}
	case <-time.After(testTimeout):
		t.Error("the request under way is not answered")
	}
}

// Reloads leave nothing behind: no goroutine, no connection, no half-built rule.
func TestReload_ManyUnderLoad(t *testing.T) {
	api := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	config := func(n int) string {
		return fmt.Sprintf(`routes:
  - {name: load, match: {path: /load}, upstream: %s, limits: [{key: "header:X-Phone", rate: %d/1h}]}
`, api.URL, n)
	}
	rounds := rounds.Of(10)
	w := start(t, config(1))
	l := startLoad(t, 8, loadRequest{w.URL + "/load", newPhones("p")})
	l.waitForMore(t, 100)
	before := w.metric("go_goroutines")
	for n := 2; n <= rounds; n++ {
		w.edit(config(n))
		if status, body := w.reload(); status != http.StatusOK {
			t.Fatalf("reload %d is answered %d %s", n, status, body)
		}
		l.waitForMore(t, 10)
	}
	if got := w.generation(); got != rounds {
		t.Errorf("generation %d is served after %d reloads", got, rounds)
	}
	await.Until(t, "old generations are gone", func() bool { return w.metric("go_goroutines") <= before+20 })
	l.stop()
	l.wantOnly(t, http.StatusOK)
}

func TestReload_IncludedFiles(t *testing.T) {
	t.Parallel()
	w := start(t, "include: [\"more/*.yaml\"]\nupstreams: {demo: echo}\nroutes: [{match: {path: /main}, upstream: demo}]\n")
	if err := os.Mkdir(filepath.Join(w.Dir, "more"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.Dir, "more", "a.yaml")
	write(t, file, "routes: [{match: {path: /a}, upstream: demo}]\n")
	if status, body := w.reload(); status != http.StatusOK {
		t.Fatalf("a reload with a new included file is answered %d %s", status, body)
	}
	if status, _ := w.get(w.URL + "/a"); status != http.StatusOK {
		t.Errorf("the included route is answered %d, want 200", status)
	}
	write(t, file, "routes: [{match: {path: /b}, upstream: demo}]\n")
	await.Until(t, "an edit of the included file is served", func() bool {
		status, _ := w.get(w.URL + "/b")
		return status == http.StatusOK
	})
	write(t, file, "routes: [{match: {path: /c}, upstream: nowhere}]\n")
	w.WaitForLog("reload refused", func(l logtest.Line) bool { // an edit may also have been read when it was half done
		return l.Text("file") == file && l.Text("line") == "1"
	})
}

// What only a restart can change is said, and the rest of that file waits too.
func TestReload_SaysWhatNeedsARestart(t *testing.T) {
	w := start(t, reloadYAML("1/60s"))
	write(t, w.File, reloadYAML("3/60s")+"listen: {http: \"127.0.0.1:1\"}\nadmin: {http: \"127.0.0.1:0\"}\n")
	status, body := w.reload()
	if status != http.StatusConflict || !strings.Contains(body, "restart") || !strings.Contains(body, "listen") {
		t.Errorf("POST /reload is answered %d %s, want 409 and that listen needs a restart", status, body)
	}
	if got := w.generation(); got != 1 {
		t.Errorf("generation %d is served, want 1", got)
	}
}

// Counts outlive a change of the count of a limit, and not one of its window.
func TestReload_WhatKeepsTheCounts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	configure := func(rate string) {
		write(t, file, redisYAML(server.Addr)+`admin: {http: "127.0.0.1:0"}
listen: {http: "127.0.0.1:0"}
upstreams: {demo: echo}
routes: [{match: {path: /v1/sms/send}, upstream: demo, limits: [{name: phone, key: "header:X-Phone", rate: `+rate+`}]}]
`)
	}
	configure("2/1h")
	w := startWith(t, dir, "-c", file)
	if got := w.statuses("p", 3); !slices.Equal(got, []int{200, 200, 429}) {
		t.Fatalf("2/1h: %v", got)
	}
	for _, change := range []struct {
		rate string
		want []int
	}{{"3/1h", []int{200, 429}}, {"2/2h", []int{200, 200, 429}}} {
		configure(change.rate)
		if status, body := w.reload(); status != http.StatusOK {
			t.Fatalf("reload: %d %s", status, body)
		}
		if got := w.statuses("p", len(change.want)); !slices.Equal(got, change.want) {
			t.Errorf("changed to %s: %v; want %v", change.rate, got, change.want)
		}
	}
}
