package test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// serve has w serve that configuration, in place of the one before.
func (w *weir) serve(config string) {
	w.t.Helper()
	before := w.generation()
	w.edit(config)
	await.Until(w.t, "the edit is served", func() bool { return w.generation() > before })
}

// A limit at the top has one count for all routes that name it, also for one that names it
// later. Metrics and operators see it once.
func TestCommonLimit_OneCountForItsRoutes(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := store + `
limits: {account: {key: "header:X-Phone", rate: 4/1h}}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [account, {name: own, key: "header:X-Phone", rate: 100/1h}]}
  - {name: b, match: {path: /b}, upstream: echo, limits: account}
`
			w := start(t, config)
			if got := slices.Concat(w.ask("a", "p", 2), w.ask("b", "p", 3), w.ask("a", "p", 1)); !slices.Equal(got, []int{200, 200, 200, 200, 429, 429}) {
				t.Fatalf("two routes answer %v, want four together", got)
			}
			w.serve(config + "  - {name: c, match: {path: /c}, upstream: echo, limits: [account]}\n")
			if got := slices.Concat(w.ask("c", "p", 1), w.ask("c", "q", 1)); !slices.Equal(got, []int{429, 200}) {
				t.Errorf("a route that joins the limit answers %v, want 429 and, for another key, 200", got)
			}
			if n := w.metric(`weir_decisions_total{limit="account",result="allowed",route=""}`); n != 5 {
				t.Errorf("the metrics count %v allowed by the limit, want 5", n)
			}
			if said := w.keys("get", "header:X-Phone=p"); strings.Count(said, "account  4/1h") != 1 || !strings.Contains(said, "a.own") {
				t.Errorf("keys get says %s, want the limit once", said)
			}
			w.keys("reset", "header:X-Phone=p", "--route", "b")
			if got := w.ask("a", "p", 1); got[0] != 200 {
				t.Errorf("after a reset of the limits of b, a answers %v, want 200: it is the same count", got)
			}
		})
	}
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
			if got := slices.Concat(w.ask("a", "p", 1), w.ask("b", "p", 1), w.ask("b", "q", 1)); !slices.Equal(got, []int{429, 429, 200}) {
				t.Errorf("after the limit has moved to the top the answers are %v, want 429 429, and 200 for another key", got)
			}
			w.serve(store + `limits: {x: {key: "header:X-Phone", rate: 2/1h}}` + "\n" + routes("x"))
			if got := w.ask("b", "p", 1); got[0] != 200 {
				t.Errorf("without its previous name the limit answers %v, want that it starts anew", got)
			}
			w.WaitForLog("config warning", func(l logtest.Line) bool {
				return strings.Contains(l.Text("problem"), "write was: a.x to keep its counts")
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
	if got := slices.Concat(w.ask("a", "p", 1), w.ask("b", "p", 3), w.ask("a", "p", 1), w.ask("free", "p", 1)); !slices.Equal(got, []int{200, 200, 200, 429, 429, 200}) {
		t.Errorf("in an outage the routes answer %v, want 200 200 200 429 429 with what was counted before, and 200 where the limit is left out", got)
	}
}
