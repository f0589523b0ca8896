package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// sent is what became of the codes of two limits.
func sent() admin.Conversion {
	key := func(name string, c sends.Counts, rates ...sends.RateCounts) sends.KeyCounts {
		return sends.KeyCounts{Masked: name, Hash: "h" + name, ID: "id:" + name, Counts: c, Rates: rates}
	}
	of := func(k sends.KeyCounts, country string, share sends.CountryShare) sends.KeyCounts {
		k.Country, k.OfCountry = country, &share
		return k
	}
	return admin.Conversion{Nodes: []view.NodeAnswer{{Node: "node-a", Said: "ok"}}, Limits: []sends.LimitCounts{
		{
			Route: "send", Limit: "unused", Key: "country", Mode: "shadow", ReturnOn: "verify", Subject: "number", Conversion: 35, Window: "14d", Floor: 7,
			All: sends.Counts{Sent: 120000, Used: 78000, WouldRefuse: 8120, Wrong: 12},
			Keys: []sends.KeyCounts{
				key("country=CN", sends.Counts{Sent: 100000, Used: 70000, Refunded: 3}, sends.RateCounts{Rate: "10/1h", Open: 149, Allowed: 513}, sends.RateCounts{Rate: "40/14d", Open: 30000, Allowed: 130040}),
				key("country=XK", sends.Counts{Sent: 8180, Used: 12, WouldRefuse: 8120, Wrong: 12}, sends.RateCounts{Rate: "10/1h", Open: 10, Allowed: 10}),
				{Masked: "country=AQ", Hash: "haq", ID: "id:aq", Unknown: "it is not known"},
			},
		},
		{
			Route: "send", Limit: "unused-range", Key: "range", Mode: "enforce", ReturnOn: "verify", Subject: "number", Window: "1d",
			All: sends.Counts{Sent: 40, Used: 30},
			Keys: []sends.KeyCounts{
				of(key("range=+3725123", sends.Counts{Sent: 30, Used: 28}, sends.RateCounts{Rate: "15/1d", Open: 2, Allowed: 43}), "EE", sends.CountryShare{Limit: "unused", Window: "1d", Verified: 28, Of: 31, OverHalf: true}),
				of(key("range=+3725124", sends.Counts{Sent: 10, Used: 2}, sends.RateCounts{Rate: "15/1d", Open: 8, Allowed: 17}), "EE", sends.CountryShare{Limit: "unused", Window: "1d", Verified: 2, Of: 31}),
			},
		},
		{Route: "send", Limit: "unused-ip", Key: "ip", Mode: "enforce", ReturnOn: "verify", Subject: "number", Window: "1h"},
	}}
}

func TestConversion_SaysWhatEnforcingWouldDo(t *testing.T) {
	o := options()
	var fails error
	o.Conversion = func(context.Context, sends.Query) (admin.Conversion, error) { return sent(), fails }
	b := open(t, o)
	p := b.get("/dashboard/conversion")
	p.shows(t, http.StatusOK, "By country, within 14d. A request is used when verify has verified its number. Beyond the rate, 35 % must be used.", "<dd>120\u202f000</dd>", "<dd>78\u202f000</dd><dd class=\"sub\">65.0\u00a0%</dd>",
		"<dd>8\u202f120</dd><dd class=\"sub\">12 (0.1\u00a0%) used later</dd>", "<strong>Enforce?</strong> It would have refused", "Write <code>mode: enforce</code>",
		"running nodes have passed on nothing within 1h", "at most 7 were sent each", ">Given back</th>", "refunded, or granted by an operator", `href="/dashboard/conversion" aria-current="page"`)
	p.shows(t, http.StatusOK, `over half of EE</span> <span class="dim-text">28 of 31 verified in 1d`, "most of what was verified in a country")
	want := []string{
		"100\u202f000", "70\u202f000", "70.0\u00a0%", "3", "0", "0", "149 of 513 by 10/1h 30\u202f000 of 130\u202f040 by 40/14d",
		"8\u202f180", "12", "0.1\u00a0%", "0", "8\u202f120", "12", "10 of 10 by 10/1h",
		"it is not known",
		"30", "28", "93.3\u00a0%", "0", "2 of 43 by 15/1d",
		"10", "2", "20.0\u00a0%", "0", "8 of 17 by 15/1d",
	}
	p.text = regexp.MustCompile(`(?s)<dl.*?</dl>`).ReplaceAllString(p.text, "")
	if got := p.cells(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if marks := strings.Count(p.text, "over half of "); marks != 1 {
		t.Errorf("%d ranges are marked, want 1", marks)
	}
	fails = errors.New("redis is away")
	b.get("/dashboard/conversion").shows(t, http.StatusOK, failed("What was sent and used cannot be read", "redis is away"))
	o.Conversion = func(context.Context, sends.Query) (admin.Conversion, error) { return admin.Conversion{}, nil }
	open(t, o).get("/dashboard/conversion").shows(t, http.StatusOK, "No limit has return_on")
}

// tops are the keys of three limits.
func tops() view.Top {
	key := func(name string, count, off int64) view.TopKey {
		return view.TopKey{Masked: name, Hash: "h" + name, ID: "id:" + name, Count: count, Error: off}
	}
	return view.Top{Minutes: 15, Nodes: []view.NodeAnswer{{Node: "node-a", Said: "ok"}}, Limits: []view.TopLimit{
		{Route: "sms", Limit: "phone", Key: "phone", Mode: "enforce", Refused: view.TopList{Total: 1388, Keys: []view.TopKey{key("p=4", 48, 0), key("p=1", 1340, 2)}}, Requests: view.TopList{Total: 1312, Floor: 3, Keys: []view.TopKey{key("p=3", 52, 0), key("p=4", 50, 0)}}},
		{Route: "sms", Limit: "spread", Key: "ip", Mode: "enforce", Refused: view.TopList{Total: 2500, Floor: 2}, Requests: view.TopList{Total: 2500, Floor: 2, Keys: []view.TopKey{key("ip=9", 100, 0)}}},
		{Route: "verify", Limit: "guesses", Key: "phone", Mode: "shadow", Refused: view.TopList{Total: 100, Keys: []view.TopKey{key("p=4", 100, 0)}}},
	}}
}

// All limits are in one table, by their refusals.
func TestTop_HasOneOrder(t *testing.T) {
	var asked view.TopQuery
	o := options()
	o.Top = func(_ context.Context, q view.TopQuery) (view.Top, error) {
		asked = q
		return tops(), nil
	}
	b := open(t, o)
	p := b.get("/dashboard/top?minutes=5&route=sms&limit=phone")
	p.shows(t, http.StatusOK, "last 5 minutes of node-a", "sms.spread: 2\u202f500", `<option selected>phone</option>`)
	if want := (view.TopQuery{Route: "sms", Limit: "phone", Minutes: 5, N: 50}); asked != want {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
	want := []string{
		"sms.phone", "1\u202f338–1\u202f340", "96.5\u00a0%", "–", // its requests are not known
		"verify.guesses shadow", "100", "100.0\u00a0%", "–",
		"sms.phone", "48", "3.5\u00a0%", "50",
		"sms.spread", "–", "", "100", // how often it was refused is not known
		"sms.phone", "0", "", "52",
	}
	if got := p.cells(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	p = b.get("/dashboard/top?q=P%3D4")
	if got := p.cells(); len(got) != 8 || got[0] != "verify.guesses shadow" || asked.Minutes != 15 {
		t.Errorf("of the key p=4 got %q", got)
	}
	b.get("/dashboard/top?q=nobody").shows(t, http.StatusOK, "No key is like that")
}

// However many limits there are, the page is bounded.
func TestTop_APageIsBounded(t *testing.T) {
	o := options()
	o.Top = func(context.Context, view.TopQuery) (view.Top, error) {
		top := tops()
		top.Limits = slices.Repeat(top.Limits, 300)
		return top, nil
	}
	b := open(t, o)
	p := b.get("/dashboard/top?q=p")
	p.shows(t, http.StatusOK, `page=2&amp;q=p">1`+"\u202f450 more keys</a>")
	b.get("/dashboard/top?page=2").shows(t, http.StatusOK, ">Page before</a> · ", "1\u202f400 more keys")
	last := b.get("/dashboard/top?page=99")
	last.shows(t, http.StatusOK, `page=29">Page before</a></p>`)
	if rows := strings.Count(last.text, `data-label="Requests"`); rows != 50 {
		t.Errorf("the last page has %d rows", rows)
	}
	if n, rows := len(element.FindAllString(p.text, -1)), strings.Count(p.text, `data-label="Requests"`); n > 3000 || rows != 50 {
		t.Errorf("%d elements in %d rows; want at most 3000 in 50", n, rows)
	}
}

// An outage is a weir whose shared store can be cut off.
func outage() (o admin.Options, cut func()) {
	o = options()
	away := error(nil)
	gone := errors.New("redis is away")
	statistics, leader, nodes := o.Statistics, o.Leader, o.Nodes
	o.Statistics = func(ctx context.Context, n int) (view.Statistics, error) {
		if away != nil {
			return view.Statistics{}, away
		}
		return statistics(ctx, n)
	}
	o.Leader = func(ctx context.Context) (view.Leadership, error) {
		if away != nil {
			return view.Leadership{Self: "node-a"}, away
		}
		return leader(ctx)
	}
	o.Nodes = func(ctx context.Context) (admin.Nodes, error) {
		if away != nil {
			return admin.Nodes{}, away
		}
		return nodes(ctx)
	}
	o.Ready = func(context.Context) admin.Health {
		if away != nil {
			return admin.Health{Ready: true, Checks: map[string]string{"store": away.Error()}}
		}
		return admin.Health{Ready: true, Checks: map[string]string{"store": "ok"}}
	}
	o.Self = func() view.Member { return view.Member{ID: "node-a", Generation: 7} }
	return o, func() { away = gone }
}

// cells are the texts of the cells of a page: of tables and of tiles.
func (p page) cells() (all []string) {
	for _, m := range regexp.MustCompile(`(?s)<(?:td|dd)[^>]*>(.*?)</(?:td|dd)>`).FindAllStringSubmatch(p.text, -1) {
		all = append(all, strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], "")))
	}
	return all
}

const storeBanner = "<strong>Redis is unreachable.</strong>"

// What is not known is –, and never 0: in every cell of every page.
func TestDashboard_UnknownIsNotZero(t *testing.T) {
	o, cut := outage()
	cut()
	o.Explain = func(context.Context, view.ExplainRequest) (view.Explanation, error) {
		return view.Explanation{Limits: []view.ExplainedLimit{{Limit: view.Limit{Name: "a", OnStoreFailure: "deny"}, Reason: "redis is away"}, {Limit: view.Limit{Name: "b", OnStoreFailure: "allow"}, Reason: "redis is away"}}}, nil
	}
	o.Limits = func(context.Context) (view.Limits, error) {
		return view.Limits{Limits: []view.Limit{
			{Route: "sms", Name: "a", Mode: "enforce", OnStoreFailure: "deny"}, {Route: "sms", Name: "b", Mode: "enforce", OnStoreFailure: "local"}, {Route: "sms", Name: "d", Mode: "enforce", OnStoreFailure: "allow"}, {Route: "sms", Name: "c", Mode: "shadow", OnStoreFailure: "allow"},
		}}, nil
	}
	b := open(t, o)
	b.post("/dashboard/explain", fields("method", "GET", "url", "/a")).shows(t, http.StatusOK, "without Redis: refuses all<", "without Redis: lets all pass<")
	p := b.get("/dashboard/routes")
	p.shows(t, http.StatusOK, "without Redis: refuses all", "without Redis: this node’s share", "without Redis: lets all pass")
	if n := strings.Count(p.text, "without Redis: "); n != 3 {
		t.Errorf("%d limits say what they do; want the three that are enforced", n)
	}
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes"} {
		p := b.get(path)
		p.shows(t, http.StatusOK, storeBanner, "–")
		p.text = regexp.MustCompile(`(?s)<h2 id="h-node".*?</section>`).ReplaceAllString(p.text, "") // what it counts itself it knows
		for _, cell := range p.cells() {
			if regexp.MustCompile(`^0( |$)|^0\.0|0\x{a0}%`).MatchString(cell) {
				t.Errorf("%s: a cell is %q; want – for what is not known", path, cell)
			}
		}
	}
}

// While the store is away, the last known numbers stay, in grey and with their time, and each page has one
// banner that says why.
func TestDashboard_LastKnownNumbersStay(t *testing.T) {
	o, cut := outage()
	b := open(t, o)
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/keys", "/dashboard/explain", "/dashboard/config"} {
		if p := b.get(path); strings.Contains(p.text, "Redis is unreachable") || strings.Contains(p.text, "without Redis: ") || strings.Contains(p.text, `class="tiles old"`) {
			t.Errorf("%s: it says that the store is away", path)
		}
	}
	now := b.get("/dashboard/series?minutes=15")
	now.shows(t, http.StatusOK, `"sums":[{"Requests":`)
	cut()
	old := b.get("/dashboard/series?minutes=15")
	old.shows(t, http.StatusOK, `,"old":`)
	if same, _, _ := strings.Cut(old.text, `,"old":`); same+"}\n" != now.text {
		t.Errorf("the charts have %s, and had %s", old.text, now.text)
	}
	b.get("/dashboard/series?minutes=60").shows(t, http.StatusServiceUnavailable, "statistics cannot be read: redis is away")
	b.get("/").shows(t, http.StatusOK, `<dl class="tiles old">`, ">1\u202f241<", "Last known at", `<strong class="dim-text">node-b</strong>`)
	b.get("/dashboard/routes").shows(t, http.StatusOK, `class="routes stack old"`, ">230<", "Last known at")
	b.get("/dashboard/nodes").shows(t, http.StatusOK, `<tr><th scope="row">node-a <span class="tag dim">this node</span>`, `<tr class="old"><th scope="row">node-b`, "Last known at")
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/keys", "/dashboard/explain", "/dashboard/config", "/dashboard/nothing"} {
		p := b.get(path)
		if n := strings.Count(p.text, storeBanner); n != 1 {
			t.Errorf("%s: got %d banners about the store; want 1", path, n)
		}
		if n := strings.Count(p.text, `role="alert"`) - strings.Count(p.text, `role="alert" hidden`); n != 1 && path != "/dashboard/nothing" {
			t.Errorf("%s: got %d alerts; want one", path, n)
		}
	}
}

// An outage has one name on all pages, a count says over which time it is, and errors are those of what answers with 5xx or of
// what an upstream failed, each by its own name.
func TestDashboard_OneThingHasOneName(t *testing.T) {
	o, cut := outage()
	cut()
	b := open(t, o)
	other := regexp.MustCompile(`(?i)store (is|was) (away|back)|store (is )?unreachable|store away|without the store|lately|errors`)
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/nodes", "/dashboard/keys", "/dashboard/explain", "/dashboard/config", "/dashboard/upstreams", "/dashboard/top"} {
		if said := other.FindString(b.get(path).text); said != "" {
			t.Errorf("%s says %q", path, said)
		}
	}
	b.get("/").shows(t, http.StatusOK, "<dt>Requests without Redis</dt>", "<dt>Responses 5xx</dt>")
	if p := b.get("/"); !regexp.MustCompile(`>last \d+s, also by share<`).MatchString(p.text) {
		t.Error("it does not say over which time requests were decided without Redis")
	}
}

// A page that was opened before has the banner with its next numbers.
func TestDashboard_TheBannerComesWithTheNumbers(t *testing.T) {
	o, cut := outage()
	b := open(t, o)
	live := func() page {
		r := b.request(http.MethodGet, "/", "")
		r.Header.Set("HX-Request", "true")
		return b.send(r)
	}
	live().shows(t, http.StatusOK, `<div id="store" hx-swap-oob="true"></div>`)
	cut()
	live().shows(t, http.StatusOK, `<div id="store" hx-swap-oob="true"><div class="banner bad"`, storeBanner, `<p class="cause">redis is away</p>`)
}

// A node always knows of itself.
func TestDashboard_ThisNodeIsAlwaysListed(t *testing.T) {
	o, cut := outage()
	cut()
	open(t, o).get("/dashboard/nodes").shows(t, http.StatusOK, `node-a <span class="tag dim">this node</span>`)
}

// Only what is wrong is red: a refusal is what limits are for.
func TestDashboard_RefusalsAreNotRed(t *testing.T) {
	b := open(t, options())
	for _, path := range []string{"/", "/dashboard/routes"} {
		if p := b.get(path); strings.Contains(p.text, "bad-text") || strings.Contains(p.text, `class="bad"`) {
			t.Errorf("%s has something red in\n%s", path, p.text)
		}
	}
}
