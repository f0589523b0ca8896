package dashboard_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

func TestDashboard_ShowsEveryPage(t *testing.T) {
	o := options()
	o.Cluster = &pushedHistory{back: new(admin.Rollback)}
	b := open(t, o)
	b.get("/").shows(t, http.StatusOK, ">1\u202f241<", ">1\u202f000<", ">230<", ">11<", ">10.1</span> a second", "node-b", "ready", ">sms.phone</th>", ">234<")
	b.get("/dashboard/routes").shows(t, http.StatusOK, "sms", "5/1h", "enforce", "<svg", ">234<", ">230<", ">606<", "No route", ">7<")
	b.get("/dashboard/keys").shows(t, http.StatusOK, `<option value="phone">`)
	b.get("/dashboard/explain").shows(t, http.StatusOK, "Method")
	b.get("/dashboard/nodes").shows(t, http.StatusOK, "1 of 2 nodes serve a different configuration", "sweep")
	b.get("/dashboard/config").shows(t, http.StatusOK, "<b>version</b>: 1", "ann", "Roll back to 6")
	b.get("/dashboard/config?diff=7").shows(t, http.StatusOK, `<span class="removed">-rate: 5/1h</span>`, "&lt;b&gt;9",
		"served for 4m", "Of 2026-01-31 07:26:00 UTC by bob, served until 2026-01-31 07:30:00 UTC")
	const oldest = "It is the oldest push that is kept"
	b.get("/dashboard/config?diff=6").shows(t, http.StatusOK, oldest)
	if p := b.get("/dashboard/config?diff=7"); strings.Contains(p.text, oldest) || strings.Count(p.text, "served for") != 1 {
		t.Errorf("what is served was replaced, or is the oldest, in\n%s", p.text)
	}
	b.get("/dashboard/nothing").shows(t, http.StatusNotFound, "There is no page")
}

func TestDashboard_HoldsBrowsersToItself(t *testing.T) {
	o := options()
	o.Token = token
	b := open(t, o)
	b.login(token)
	for _, path := range []string{"/", "/dashboard/login", "/dashboard/keys", "/dashboard/static/weir.js", "/dashboard/series", "/dashboard/nothing"} {
		h := b.get(path).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s: got %q, want %q", path, name, got, want)
			}
		}
	}
}

// The policy forbids them, and what is forbidden is silently left out.
func TestDashboard_NoPageHasScriptsOrStylesInIt(t *testing.T) {
	o := options()
	o.Cluster = &pushedHistory{back: new(admin.Rollback)}
	b := open(t, o)
	inline := regexp.MustCompile(`<style|\sstyle=|<script>|<script [^>]*>[^<]|\son[a-z]+=|javascript:|hx-on|https?://[^ ]*\.(js|css)`)
	looked := b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	looked.shows(t, http.StatusOK)
	explained := b.post("/dashboard/explain", fields("method", "GET", "url", "/sms"))
	explained.shows(t, http.StatusOK)
	pages := []page{looked, explained}
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/config?diff=7"} {
		pages = append(pages, b.get(path))
	}
	for _, p := range pages {
		if found := inline.FindString(p.text); found != "" {
			t.Errorf("%s: got %q in the page", p.Request.URL.Path, found)
		}
	}
}

func TestDashboard_LivePartComesAlone(t *testing.T) {
	b := open(t, options())
	r := b.request(http.MethodGet, "/", "")
	r.Header.Set("HX-Request", "true")
	p := b.send(r)
	p.shows(t, http.StatusOK, `id="n-requests"`)
	if strings.Contains(p.text, "<html") {
		t.Error("got the whole page")
	}
}

func TestDashboard_SaysWhatCannotBeKnown(t *testing.T) {
	o := options()
	away := errors.New("redis is away")
	o.Statistics = func(context.Context, int) (view.Statistics, error) { return view.Statistics{}, away }
	o.Leader = func(context.Context) (view.Leadership, error) { return view.Leadership{}, away }
	o.Nodes = func(context.Context) (admin.Nodes, error) { return admin.Nodes{}, away }
	o.Ready = func(context.Context) admin.Health {
		return admin.Health{Ready: true, Checks: map[string]string{"store": "no answer"}}
	}
	b := open(t, o)
	b.get("/").shows(t, http.StatusOK, "Statistics cannot be read. Redis is away.", "Who leads now is not known.", `data-state="Degraded; store: no answer"`)
	b.get("/dashboard/nodes").shows(t, http.StatusOK, "Nodes cannot be listed. Redis is away.")
	b.get("/dashboard/series").shows(t, http.StatusServiceUnavailable, "redis is away")
}

// What comes from requests and files may be anything.
func TestDashboard_EscapesWhatItShows(t *testing.T) {
	const evil = `<script>alert(1)</script>"'`
	o := options()
	o.Routes = func(context.Context) (view.Routes, error) {
		return view.Routes{Routes: []view.Route{{Name: evil, Path: evil}}}, nil
	}
	o.Limits = func(context.Context) (view.Limits, error) {
		return view.Limits{Limits: []view.Limit{{Route: evil, Name: evil, Key: evil, Rates: []string{evil}, Mode: evil}}}, nil
	}
	o.Decisions = func(context.Context, view.DecisionQuery) (view.Decisions, error) {
		return view.Decisions{Decisions: []view.Decision{{Decided: view.Decided{RequestID: evil, Method: evil, Path: evil, Outcome: evil, Limits: []view.DecisionLimit{{Limit: evil, Key: evil, Masked: evil, Hash: evil, ID: evil}}}}}}, nil
	}
	o.Top = func(context.Context, view.TopQuery) (view.Top, error) {
		return view.Top{Limits: []view.TopLimit{{Route: evil, Limit: evil, Key: evil, Refused: view.TopList{Total: 1, Keys: []view.TopKey{{Masked: evil, ID: evil, Count: 1}}}}}}, nil
	}
	o.Audit = func(context.Context, view.AuditQuery) (view.Audit, error) {
		return view.Audit{Entries: []view.AuditEntry{{Who: evil, Action: evil, Reason: evil, Masked: evil}}, Next: evil}, nil
	}
	o.Upstreams = func(context.Context) (view.Upstreams, error) {
		return view.Upstreams{Upstreams: []view.Upstream{{UpstreamState: view.UpstreamState{Name: evil, Routes: []string{evil}, Balance: evil, Checked: evil}, Targets: []view.Target{{Target: evil, State: evil, Results: map[string]int64{evil: 1}, Nodes: []view.TargetNode{{Node: evil, TargetState: view.TargetState{State: evil}}}}}}}}, nil
	}
	o.Standing = func(_ context.Context, q view.KeyQuery) (view.KeyStanding, error) {
		return view.KeyStanding{Notes: []string{evil}, Limits: []view.LimitStanding{{Route: evil, Limit: evil, Masked: evil}}}, nil
	}
	b := open(t, o)
	looked := b.post("/dashboard/keys", fields("key", evil, "value", evil, "route", evil))
	explained := b.post("/dashboard/explain", fields("method", evil, "url", evil, "header", evil+": "+evil, "body", evil))
	for _, p := range []page{looked, explained, b.get("/dashboard/routes"), b.get("/dashboard/decisions?request=" + "%3Cscript%3Ealert(1)"), b.get("/dashboard/top"), b.get("/dashboard/upstreams"), b.get("/dashboard/audit"), b.get("/dashboard/keys")} {
		p.shows(t, http.StatusOK, "&lt;script&gt;alert(1)")
		if strings.Contains(p.text, "<script>alert") {
			t.Errorf("%s: got a script of somebody else's", p.Request.URL.Path)
		}
	}
}

func TestDashboard_AsksForDecisionsAsFiltered(t *testing.T) {
	var asked view.DecisionQuery
	o := options()
	o.Decisions = func(_ context.Context, q view.DecisionQuery) (view.Decisions, error) {
		asked = q
		return view.Decisions{Nodes: []view.NodeAnswer{{Node: "node-c", Said: "no answer"}}}, nil
	}
	b := open(t, o)
	b.get("/dashboard/decisions?request=r-1&route=sms&limit=phone&outcome=refused&hash=0123").shows(t, http.StatusOK, "node-c: no answer", "No request of the last minutes is like that")
	want := view.DecisionQuery{RequestID: "r-1", Route: "sms", Limit: "phone", Outcome: "refused", Key: "0123", N: 50}
	if asked != want {
		t.Errorf("got %+v, want %+v", asked, want)
	}
}

// A node that is gone is named, with when it was seen last; the odd one out is named beside the majority.
func TestNodes_NamesTheLostAndTheOddOneOut(t *testing.T) {
	at := time.Now().Add(-5*time.Minute + 10*time.Second)
	o := options()
	nodes := o.Nodes
	o.Nodes = func(ctx context.Context) (admin.Nodes, error) {
		all, err := nodes(ctx)
		all.Lost = []view.Member{{ID: "node-c", Generation: 6, Started: at.Add(-time.Hour), Seen: at}}
		all.Configurations = []admin.NodeGroup{{Hash: "aaaaaaaaaaaaaaaa", Generation: 7, Source: "redis", Nodes: []string{"node-a", "node-d"}}, {Hash: "bbbbbbbbbbbbbbbb", Generation: 6, Source: "file", Nodes: []string{"node-b"}, Changes: []config.Change{{What: "limit", Name: "sms.phone", Was: "{rate: 5/1m}", Is: "{rate: 3/1m}", Fields: []config.FieldChange{{Name: "rates", Was: "5/1m", Is: "3/1m"}}}}},
			{Hash: "cc", Nodes: []string{"node-e"}, Unknown: "node-e did not say what it serves"}}
		return all, err
	}
	open(t, o).get("/dashboard/nodes").shows(t, http.StatusOK, "Lost: <strong>node-c</strong>", "4m51s ago", `node-c <span class="tag bad">lost</span>`, "1h, to its end",
		"Most: generation 7 from a push, <code>aaaaaaaaaaaa</code>: node-a, node-d", "Other: generation 6 from their own file, <code>bbbbbbbbbbbb</code>: node-b", "<li>sms.phone: 5/1m → 3/1m</li>", "<li>what differs is not known: node-e did not say what it serves</li>")
}

// A decision is one line with its sentence; the limits that were not asked are a number, and the rest is folded.
func TestDecisions_AreOneLineEach(t *testing.T) {
	var asked []view.DecisionQuery
	left := int64(1234)
	at := time.Date(2026, 1, 31, 9, 30, 0, 5, time.UTC)
	one := view.Decision{Decided: view.Decided{RequestID: "r-1", At: at, Route: "sms", Method: "POST", Path: "/sms?a=b", Status: 429, Outcome: "refused", Summary: "refused by sms.phone 5/1h, passes 09:31:00 UTC (1m)", Limits: []view.DecisionLimit{
		{Limit: "phone", Permits: "5/1h", Result: "refused", Key: "phone", Masked: "phone=+86138****8000", ID: "id:x", Left: &left}, {Limit: "ip", Result: "not_asked", Key: "ip", Masked: "ip=203.0.113.9"}, {Limit: "more", Result: "not_asked"},
	}}}
	o := options()
	o.Decisions = func(_ context.Context, q view.DecisionQuery) (view.Decisions, error) {
		asked = append(asked, q)
		return view.Decisions{Decisions: slices.Repeat([]view.Decision{one}, q.N)}, nil
	}
	b := open(t, o)
	p := b.get("/dashboard/decisions?route=none&outcome=rejected")
	p.shows(t, http.StatusOK, `<span class="why">refused by sms.phone 5/1h`, `<span class="tag warn">429</span>`, "1\u202f234 left", "2 rates not asked: this node still knew of the refusal", `<option selected value="none">no route</option>`,
		`href="/dashboard/decisions?before=2026-01-31T09%3A30%3A00.000000005Z&amp;outcome=rejected&amp;route=none"`, `href="/dashboard/explain?method=POST&amp;request=r-1&amp;url=%2Fsms%3Fa%3Db"`)
	if n := strings.Count(p.text, "<summary>"); n != 50 || strings.Contains(p.text, "<details open") {
		t.Errorf("%d requests; want 50, folded", n)
	}
	if n := len(element.FindAllString(p.text, -1)); n > 3000 {
		t.Errorf("the page has %d elements; want at most 3000", n)
	}
	b.get("/dashboard/explain?method=POST&url=/sms&request=r-1").shows(t, http.StatusOK, "Refused by sms.phone 5/1h", "fill in those that carry its keys: phone=&#43;86138****8000, ip=203.0.113.9.", `name="client" value="203.0.113.9"`)
	if want := []view.DecisionQuery{{Route: "none", Outcome: "rejected", N: 50}, {RequestID: "r-1", N: 1}}; !slices.Equal(asked, want) {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
}

// A target that is ill on one node is told of first, with where and for how long.
func TestDashboard_ShowsUpstreams(t *testing.T) {
	at := time.Now()
	o := options()
	said := view.Upstreams{Nodes: []view.NodeAnswer{{Node: "node-a", Said: "ok"}, {Node: "node-b"}}, Upstreams: []view.Upstream{{
		UpstreamState: view.UpstreamState{
			Name: "sms", Routes: []string{"send", "verify"}, Balance: "least_loaded", Protocol: "http1", Checked: "/healthz", MaxConnections: 9, Queue: 5, Waiting: 2, Retries: 1, Retried: 1234,
		},
		Targets: []view.Target{
			{Target: "http://10.0.0.1:80", Weight: 2, State: "healthy", Requests: 5000, Results: map[string]int64{"ok": 5000}, Nodes: []view.TargetNode{{Node: "node-a", TargetState: view.TargetState{State: "healthy"}}}},
			{Target: "http://10.0.0.2:80", Weight: 1, State: "ejected", InFlight: 3, Requests: 200, Errors: 50, Results: map[string]int64{"ok": 150, "connect": 50},
				Nodes: []view.TargetNode{{Node: "node-a", TargetState: view.TargetState{State: "ejected", FailedConnects: 5, EjectedUntil: at.Add(10 * time.Second)}}, {Node: "node-b", TargetState: view.TargetState{State: "unhealthy", FailedChecks: 3}}}},
		},
	}}}
	o.Upstreams = func(context.Context) (view.Upstreams, error) { return said, nil }
	b := open(t, o)
	b.get("/dashboard/upstreams").shows(t, http.StatusOK, "1 of 2 targets is not healthy on some node or on all", "node-b: no answer", "For routes send, verify", "least loaded", "checked at <code>/healthz</code>",
		"2 waiting", "1\u202f234 requests were retried", "weight 2", "25.0\u00a0%", "</span> for ", "5 failed connects in a row", "3 failed checks in a row", "connect: 50", `hx-trigger="every 3s"`, "Counts are of node-a, each")
	said.Upstreams[0].Targets = said.Upstreams[0].Targets[:1]
	b.get("/dashboard/upstreams").shows(t, http.StatusOK, "The only target is healthy")
	said.Upstreams = nil
	b.get("/dashboard/upstreams").shows(t, http.StatusOK, "No route forwards to an upstream")
	o.Upstreams = func(context.Context) (view.Upstreams, error) { return view.Upstreams{}, errors.New("redis is away") }
	open(t, o).get("/dashboard/upstreams").shows(t, http.StatusOK, failed("Upstreams cannot be read", "redis is away"))
}

// A limit of several routes is one row, with its routes and what it decided for all of them.
func TestRoutes_ShowACommonLimitOnce(t *testing.T) {
	o := options()
	o.Limits = func(context.Context) (view.Limits, error) {
		return view.Limits{Limits: []view.Limit{{Routes: []string{"sms", "verify"}, Name: "account", Key: "user", Rates: []string{"9/1h"}, Mode: "enforce"}}}, nil
	}
	o.Statistics = func(context.Context, int) (view.Statistics, error) {
		at := time.Now().UTC().Add(-2 * time.Minute).Truncate(time.Minute)
		return view.Statistics{Minutes: []view.Minute{{At: at, Routes: []view.RouteMinute{{Route: "sms", Requests: 40, Allowed: 40}, {Limits: []view.LimitMinute{{Limit: "account", Allowed: 4321, Refused: 1234}}}}}}}, nil
	}
	p := open(t, o).get("/dashboard/routes")
	p.shows(t, http.StatusOK, "Limits of several routes", `account<span class="sub">by user</span><span class="sub">sms, verify</span>`,
		"data-label=\"Asked\">5\u202f555<", "data-label=\"Allowed\">4\u202f321<", "data-label=\"Refused\">1\u202f234<")
	open(t, options()).get("/dashboard/routes").shows(t, http.StatusOK, "data-label=\"Requests\">1\u202f234<span class=\"sub\">4 rejected</span><", "data-label=\"Allowed\">1\u202f000<", "data-label=\"Refused\">230<")
	if n := strings.Count(p.text, "account<span"); n != 1 {
		t.Errorf("the limit has %d rows; want one", n)
	}
}

// A limit whose costs are known afterwards says below it what was used of what was reserved, how many requests used more, and
// which keep their reservation, by the reason: of all minutes together, and of a budget as money. Others say nothing of it.
func TestRoutes_ShowWhatWasSettled(t *testing.T) {
	o := options()
	o.Limits = func(context.Context) (view.Limits, error) {
		return view.Limits{Limits: []view.Limit{
			{Route: "sms", Name: "tokens", Key: "user"}, {Route: "sms", Name: "silent", Key: "user"}, {Route: "sms", Name: "phone", Key: "phone", Rates: []string{"5/1h"}},
			{Route: "sms", Name: "spend", Key: "team", AmountText: func(n int64) string { return fmt.Sprintf("%d.%02d USD", n/100, n%100) }},
		}}, nil
	}
	o.Statistics = func(context.Context, int) (view.Statistics, error) {
		at := time.Now().UTC().Truncate(time.Minute)
		limits := []view.LimitMinute{
			{Limit: "tokens", Allowed: 9, Settled: view.Settlement{Reserved: 5000, Refunded: 1200, Charged: 300, Requests: 7, Absent: 1, Cut: 1}},
			{Limit: "silent", Allowed: 3, Settled: view.Settlement{Error: 2, Encoded: 1}},
			{Limit: "phone", Allowed: 4},
			{Limit: "spend", Allowed: 1, Settled: view.Settlement{Reserved: 150, Requests: 1}},
		}
		route := []view.RouteMinute{{Route: "sms", Requests: 9, Allowed: 9, Limits: limits}}
		return view.Statistics{Minutes: []view.Minute{{At: at.Add(-time.Minute), Routes: route}, {At: at, Routes: route}}}, nil
	}
	o.Top = func(context.Context, view.TopQuery) (view.Top, error) {
		return view.Top{Limits: []view.TopLimit{{Route: "sms", Limit: "phone", Requests: view.TopList{Keys: []view.TopKey{{ID: "id:x"}}}}}}, nil
	}
	o.Standing = func(context.Context, view.KeyQuery) (view.KeyStanding, error) {
		s := standing(time.Now())
		s.Limits[0].Windows[0].Used = 329
		return s, nil
	}
	p := open(t, o).get("/dashboard/routes")
	p.shows(t, http.StatusOK, "329 of 5, 324 owed",
		"<td colspan=\"10\">14 requests settled: 8\u202f200 used of 10\u202f000 reserved (82.0\u00a0%), 2\u202f400 refunded, 600 charged to those that used more. Unsettled, the reservation stays: 2 absent, 2 cut.</td>",
		`<td colspan="10"> Unsettled, the reservation stays: 4 error, 2 encoded.</td>`,
		"<td colspan=\"10\">2 requests settled: 3.00 USD used of 3.00 USD reserved (100.0\u00a0%).</td>")
	if n := strings.Count(p.text, `class="more"`); n != 3 {
		t.Errorf("%d limits say what was settled; want 3 of 4", n)
	}
}

// manyRoutes are 500 routes of two limits each.
func manyRoutes() admin.Options {
	o := options()
	var routes view.Routes
	var limits view.Limits
	m := view.Minute{At: time.Now().UTC().Truncate(time.Minute)}
	for i := range 500 {
		name := fmt.Sprint("route-", i)
		routes.Routes = append(routes.Routes, view.Route{Name: name, Path: "/v1/" + name})
		r := view.RouteMinute{Route: name, Requests: int64(i), Allowed: int64(i)}
		for _, l := range []string{"phone", "address"} {
			limits.Limits = append(limits.Limits, view.Limit{Route: name, Name: l, Key: l, Rates: []string{"5/1h", "10/24h"}, Mode: "enforce"})
			r.Limits = append(r.Limits, view.LimitMinute{Limit: l, Allowed: int64(i)})
		}
		m.Routes = append(m.Routes, r)
	}
	o.Routes = func(context.Context) (view.Routes, error) { return routes, nil }
	o.Limits = func(context.Context) (view.Limits, error) { return limits, nil }
	o.Statistics = func(context.Context, int) (view.Statistics, error) {
		return view.Statistics{Minutes: []view.Minute{m}}, nil
	}
	return o
}

var (
	element = regexp.MustCompile(`<[a-z]`)
	routeOf = regexp.MustCompile(`rowgroup">(route-\d+)<`)
)

// routesOn returns the routes on a page.
func (p page) routesOn() (all []string) {
	for _, m := range routeOf.FindAllStringSubmatch(p.text, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestRoutes_APageIsBounded(t *testing.T) {
	b := open(t, manyRoutes())
	p := b.get("/dashboard/routes")
	p.shows(t, http.StatusOK, "500 routes", "page 1 of 32", `href="/dashboard/routes?page=2"`)
	if n, bytes := len(element.FindAllString(p.text, -1)), len(p.text); n > 3000 || bytes > 150<<10 {
		t.Errorf("the page has %d elements in %d bytes; want at most 3000 in 150 KiB", n, bytes)
	}
	seen := map[string]bool{}
	for i := range 32 {
		for _, name := range b.get(fmt.Sprint("/dashboard/routes?page=", i+1)).routesOn() {
			seen[name] = true
		}
	}
	if len(seen) != 500 {
		t.Errorf("all pages together have %d routes; want 500", len(seen))
	}
	if got := b.get("/dashboard/routes?page=99").routesOn(); len(got) == 0 || got[len(got)-1] != "route-499" {
		t.Errorf("beyond the last page are %q; want the last page", got)
	}
}

func TestRoutes_AreFilteredAndOrdered(t *testing.T) {
	b := open(t, manyRoutes())
	p := b.get("/dashboard/routes?q=ROUTE-49&sort=requests")
	p.shows(t, http.StatusOK, "11 routes", `hx-get="/dashboard/routes?q=ROUTE-49&amp;sort=requests"`, `<option value="requests" selected>`)
	if got := p.routesOn(); len(got) != 11 || got[0] != "route-499" || got[10] != "route-49" {
		t.Errorf("got %q; want the routes with 49, that with most requests first", got)
	}
	if got := b.get("/dashboard/routes?sort=name").routesOn(); got[1] != "route-1" || got[2] != "route-10" {
		t.Errorf("by name come %q", got)
	}
	b.get("/dashboard/routes?q=nothing-like-that").shows(t, http.StatusOK, "No route, limit or key is like that")
}

// Pages, styles and answers of the API are compressed; events are not.
func TestDashboard_IsCompressed(t *testing.T) {
	b := open(t, manyRoutes())
	for path, most := range map[string]int{"/dashboard/routes": 12 << 10, "/dashboard/static/weir.css": 6 << 10, "/dashboard/static/weir.js": 6 << 10, "/api/v1/limits": 12 << 10, "/": 4 << 10} {
		r := b.request(http.MethodGet, path, "")
		r.Header.Set("Accept-Encoding", "gzip") // read as it is, and not by the client
		p := b.send(r)
		if p.Header.Get("Content-Encoding") != "gzip" || p.Header.Get("Vary") == "" || len(p.text) > most {
			t.Errorf("%s: %q of %d bytes, Vary %q; want gzip of at most %d", path, p.Header.Get("Content-Encoding"), len(p.text), p.Header.Get("Vary"), most)
			continue
		}
		unpacked, err := gzip.NewReader(strings.NewReader(p.text))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(unpacked); err != nil || len(text) < len(p.text) {
			t.Errorf("%s: unpacked it has %d bytes, %v", path, len(text), err)
		}
	}
}

// Monitors that ask with HEAD see the status that GET has.
func TestDashboard_AnswersHEAD(t *testing.T) {
	b := open(t, options())
	for path, want := range map[string]int{"/": 200, "/healthz": 200, "/readyz": 200, "/dashboard/routes": 200, "/dashboard/nothing": 404, "/api/v1/nodes": 200, "/api/v1/nothing": 404} {
		r := b.request(http.MethodHead, path, "")
		if p := b.send(r); p.StatusCode != want || p.text != "" {
			t.Errorf("HEAD %s: got %d and %q, want %d and nothing", path, p.StatusCode, p.text, want)
		}
	}
}

// Where no limit is in shadow mode, nothing is said of it beside the limits that refuse.
func TestOverview_ShadowWhereThereIsOne(t *testing.T) {
	for shadowed, want := range map[int64]bool{0: false, 5: true} {
		o := options()
		o.Statistics = func(context.Context, int) (view.Statistics, error) {
			limits := []view.LimitMinute{{Limit: "phone", Refused: 9, ShadowRefused: shadowed}, {Limit: "ip", Refused: 1}}
			return view.Statistics{Minutes: []view.Minute{{At: time.Now().UTC().Truncate(time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 10, Refused: 10, Limits: limits}}}}}, nil
		}
		p := open(t, o).get("/")
		_, table, found := strings.Cut(p.text, "Limits that refused most")
		if got := strings.Count(table, `data-label="Shadow"`) == 2 && strings.Contains(table, `>Shadow</th>`); !found || got != want {
			t.Errorf("%d shadowed: a column of them: %v, want %v", shadowed, got, want)
		}
	}
}
