package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
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
			l := startLoad(t, 8, w.URL+"/load", newPhones("load"))
			wantStatuses(t, "before the edit", w.statuses("used", 2), 200, 429)
			l.waitForMore(t, 100)
			before := w.generation()

			w.edit(head + reloadYAML("3/60s"))
			await.Until(t, "the edit is served", func() bool { return w.generation() > before })
			wantStatuses(t, "after one permit and the edit to 3/60s", w.statuses("used", 3), 200, 200, 429)
			l.waitForMore(t, 100)

			served := w.generation()
			w.edit(head + reloadYAML("nonsense"))
			refused := w.WaitForLog("reload refused", nil)
			if refused.Text("file") == "" || refused.Text("line") == "" || refused.Text("column") == "" {
				t.Errorf("the log says %v, want file, line and column", refused)
			}
			wantRefusal(t, w)
			wantStatuses(t, "after nonsense the used-up phone", w.statuses("used", 1), 429)
			wantStatuses(t, "after nonsense another phone", w.statuses("other", 4), 200, 200, 200, 429)
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
	text := filetest.Read(t, w.File)
	before, _, _ := strings.Cut(string(text), "nonsense")
	line := 1 + strings.Count(before, "\n")
	column := len(before) - strings.LastIndex(before, "\n")
	want := fmt.Sprintf("%s:%d:%d: ", w.File, line, column)
	if len(problem.Problems) != 1 || !strings.HasPrefix(problem.Problems[0], want) || problem.Detail == "" || problem.Status != status {
		t.Errorf("POST /reload says %s, want one problem at %s", body, want)
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
	l := startLoad(t, 8, w.URL+"/load", newPhones("p"))
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

// serve has w serve that configuration, in place of the one before.
func (w *weir) serve(config string) {
	w.t.Helper()
	before := w.generation()
	w.edit(config)
	await.Until(w.t, "the edit is served", func() bool { return w.generation() > before })
}

// A limit that moves from a route to the top, or back, keeps its count if it says what it
// was called.
func TestCommonLimit_KeepsTheCountOfItsPreviousName(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			routes := func(of string) string {
				return "routes: [{name: a, match: {path: /a}, upstream: echo, limits: [" + of + "]}, {name: b, match: {path: /b}, upstream: echo, limits: [" + of + "]}]\n"
			}
			w := start(t, store+`routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{name: x, key: "header:X-Phone", rate: 2/1h}]}]`+"\n")
			w.ask("a", "p", 2)
			w.serve(store + `limits: {x: {key: "header:X-Phone", rate: 2/1h, was: a.x}}` + "\n" + routes("x"))
			wantStatuses(t, "after the limit has moved to the top, and another key", slices.Concat(w.ask("a", "p", 1), w.ask("b", "p", 1), w.ask("b", "q", 1)), 429, 429, 200)
			w.serve(store + `limits: {x: {key: "header:X-Phone", rate: 2/1h}}` + "\n" + routes("x"))
			wantStatuses(t, "without its previous name the limit starts anew", w.ask("b", "p", 1), 200)
			w.WaitForLog("config warning", func(l logtest.Line) bool {
				return strings.Contains(l.Text("problem")+"; "+l.Text("instead"), "write was: a.x to keep its counts")
			})
		})
	}
}

// Without Redis the limit is one count as well: this node's share of it.
func TestCommonLimit_OneShareInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisYAML(server.Addr)+`
limits: {account: {key: "header:X-Phone", rate: 4/1h}}
defaults: {limits: account}
routes:
  - {name: a, match: {path: /a}, upstream: echo}
  - {name: b, match: {path: /b}, upstream: echo}
  - {name: free, match: {path: /free}, upstream: echo, limits: none}
`)
	w.ask("a", "p", 1)
	server.Kill()
	wantStatuses(t, "in an outage, with what was counted before, and where the limit is left out", slices.Concat(w.ask("a", "p", 1), w.ask("b", "p", 3), w.ask("a", "p", 1), w.ask("free", "p", 1)), 200, 200, 200, 429, 429, 200)
}
