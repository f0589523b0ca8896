package dashboard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

const token = "a-token-of-operators"

// options are those of a weir with one route, in which things have happened.
func options() admin.Options {
	at := time.Now().UTC().Truncate(time.Minute)
	return admin.Options{
		Gatherer: prometheus.NewRegistry(),
		Ready: func(context.Context) admin.Health {
			return admin.Health{Ready: true, Checks: map[string]string{"store": "ok"}}
		},
		Leader: func(context.Context) (view.Leadership, error) {
			return view.Leadership{Self: "node-a", Node: "node-b", Since: at, Tasks: []view.TaskRun{{Task: "sweep", Node: "node-b", At: at, Next: at}}}, nil
		},
		Nodes: func(context.Context) (admin.Nodes, error) {
			return admin.Nodes{Self: "node-a", Nodes: []view.Member{
				{ID: "node-a", Hash: "aaaaaaaaaaaaaaaa", Generation: 7, Started: at, Seen: at},
				{ID: "node-b", Hash: "bbbbbbbbbbbbbbbb", Generation: 6, Started: at, Seen: at, Drift: true},
			}}, nil
		},
		Statistics: func(context.Context, int) (view.Statistics, error) {
			return view.Statistics{Minutes: []view.Minute{{At: at, Routes: []view.RouteMinute{{
				Route: "sms", Requests: 1234, Allowed: 995, Refused: 230, ShadowRefused: 5, Rejected: 4, Limits: []view.LimitMinute{{Limit: "phone", Allowed: 1000, Refused: 234, ShadowRefused: 5}},
			}, {Route: "none", Requests: 7, Rejected: 7}}}}, Last: view.Minute{At: at, Routes: []view.RouteMinute{{Route: "sms", Requests: 606, Allowed: 606}}}}, nil
		},
		Config: func(context.Context) (view.Config, error) {
			return view.Config{Node: "node-a", Generation: 7, Hash: "aaaaaaaaaaaaaaaa", Effective: "version: 1\n"}, nil
		},
		Routes: func(context.Context) (view.Routes, error) {
			return view.Routes{Routes: []view.Route{{Name: "sms", Path: "/sms"}}}, nil
		},
		Limits: func(context.Context) (view.Limits, error) {
			return view.Limits{Limits: []view.Limit{{Route: "sms", Name: "phone", Key: "phone", Rates: []string{"5/1h"}, Mode: "enforce"}}}, nil
		},
		Standing: func(_ context.Context, q view.KeyQuery) (view.KeyStanding, error) {
			if len(q.Pairs) == 0 || q.Pairs[0].Key != "phone" {
				return view.KeyStanding{}, errors.New("no limit counts by that")
			}
			return standing(at), nil
		},
		Change: func(_ context.Context, c view.KeyChange) (view.KeyResult, error) {
			return view.KeyResult{KeyChange: c, Changed: standing(at).Limits, Everywhere: true}, nil
		},
		Bans: func(context.Context) (admin.Bans, error) { return admin.Bans{}, nil },
		Maintenance: func(context.Context) (admin.Maintenance, error) {
			return admin.Maintenance{Everywhere: true}, nil
		},
		Explain: func(_ context.Context, r view.ExplainRequest) (view.Explanation, error) {
			return view.Explanation{Method: r.Method, Path: r.URL, Stages: []view.ExplainedStage{
				{Name: "match route", Result: view.StagePassed}, {Name: "check limits", Result: view.StageRefused, Detail: "limit phone"},
			}, Answer: &view.ExplainedAnswer{Status: 429}}, nil
		},
		Decisions:  func(context.Context, view.DecisionQuery) (view.Decisions, error) { return view.Decisions{}, nil },
		Top:        func(context.Context, view.TopQuery) (view.Top, error) { return view.Top{}, nil },
		Audit:      func(context.Context, view.AuditQuery) (view.Audit, error) { return view.Audit{}, nil },
		Conversion: func(context.Context, sends.Query) (admin.Conversion, error) { return admin.Conversion{}, nil },
		Upstreams:  func(context.Context) (view.Upstreams, error) { return view.Upstreams{}, nil },
		Simulate: func(context.Context, admin.SimulateQuery) (admin.Simulation, error) {
			return admin.Simulation{}, nil
		},
	}
}

func standing(at time.Time) view.KeyStanding {
	return view.KeyStanding{At: at, Limits: []view.LimitStanding{{
		Route: "sms", Limit: "phone", Key: "phone", Masked: "phone=+86138****8000", Hash: "0123456789abcdef", ID: "id:x", Mode: "enforce",
		Windows: []view.WindowStanding{{Name: "phone-1h", Rate: "5/1h", Most: 5, Used: 5, Next: at.Add(90 * time.Second), Full: at.Add(time.Hour)}},
	}}}
}

// A pushedHistory is a cluster whose configurations were pushed.
type pushedHistory struct {
	back   *admin.Rollback
	pushed []admin.Push
	refuse error
}

func (h *pushedHistory) Push(_ context.Context, p admin.Push) (admin.Pushed, error) {
	h.pushed = append(h.pushed, p)
	changes := []config.Change{{What: "limit", Name: "sms.phone", Was: "5/1h", Is: "<3/1h>"}}
	return admin.Pushed{Generation: 8, Changed: !p.DryRun, DryRun: p.DryRun, Changes: changes, Nodes: []view.NodeAnswer{{Node: "node-b", Said: "ok"}}, Warnings: []string{"weir.yaml:1:1: mind this"}}, h.refuse
}

func (h *pushedHistory) Rollback(_ context.Context, r admin.Rollback) (admin.Pushed, error) {
	*h.back = r
	return admin.Pushed{Generation: 8, Changed: true, From: r.Generation, Served: "2026-01-31 07:26:00 UTC to 2026-01-31 07:30:00 UTC"}, nil
}

func (h *pushedHistory) History(context.Context) (admin.History, error) {
	at := time.Date(2026, 1, 31, 7, 26, 0, 0, time.UTC)
	return admin.History{History: []view.Entry{{Generation: 7, Hash: "aaaaaaaaaaaaaaaa", Author: "ann", At: at.Add(4 * time.Minute)}, {Generation: 6, Hash: "cccccccccccccccc", Author: "bob", At: at}}}, nil
}

func (h *pushedHistory) Diff(_ context.Context, n int64) (admin.Diff, error) {
	return admin.Diff{Entry: view.Entry{Generation: n}, Oldest: n == 6, Diff: "--- a/weir.yaml\n+++ b/weir.yaml\n@@ -1 +1 @@\n-rate: 5/1h\n+rate: <b>9</b>/1h\n"}, nil
}

// A browser keeps cookies, and sends what browsers send.
type browser struct {
	t    *testing.T
	at   string
	http http.Client
}

// open serves the pages of o to a browser.
func open(t *testing.T, o admin.Options) *browser {
	t.Helper()
	o.Dashboard = dashboard.New(o)
	s := httptest.NewServer(admin.New(o))
	t.Cleanup(s.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, s.URL, http.Client{Jar: jar}}
}

// A page is what a browser was answered.
type page struct {
	*http.Response
	text string
}

func (b *browser) send(r *http.Request) page {
	b.t.Helper()
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{answer, string(text)}
}

// request makes a request with nothing that browsers send by themselves.
func (b *browser) request(method, path, body string) *http.Request {
	b.t.Helper()
	r, err := http.NewRequest(method, b.at+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *browser) get(path string) page {
	b.t.Helper()
	r := b.request(http.MethodGet, path, "")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.send(r)
}

// post sends a form as a page of the dashboard would.
func (b *browser) post(path string, form url.Values) page {
	b.t.Helper()
	r := b.request(http.MethodPost, path, form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.at)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.send(r)
}

// fields is a form of names and values.
func fields(all ...string) url.Values {
	form := url.Values{}
	for i := 0; i+1 < len(all); i += 2 {
		form.Add(all[i], all[i+1])
	}
	return form
}

// login logs in with a token.
func (b *browser) login(token string) page {
	b.t.Helper()
	return b.post("/dashboard/login", url.Values{"token": {token}})
}

// shows fails unless p is answered so and has all texts.
func (p page) shows(t *testing.T, status int, texts ...string) {
	t.Helper()
	if p.StatusCode != status {
		t.Errorf("%s: got status %d, want %d\n%s", p.Request.URL.Path, p.StatusCode, status, p.text)
	}
	for _, text := range texts {
		if !strings.Contains(p.text, text) {
			t.Errorf("%s: got no %q in\n%s", p.Request.URL.Path, text, p.text)
		}
	}
}

// failed is how a page says that something failed, and why.
func failed(what, cause string) string {
	return "<strong>" + what + `.</strong></p><p class="cause">` + cause
}
