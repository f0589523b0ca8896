package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
)

// plannedYAML is a route on which the proxy at 192.0.2.1 says the plan of each user.
func plannedYAML(limit string) string {
	return "client_ip: {trusted_proxies: [192.0.2.1]}\n" + limitYAML("{name: quota, key: 'header:X-User', plan: 'header:X-Plan', "+limit+"}")
}

// takes sends n requests of a user under a plan, and fails unless all pass.
func (p *testProxy) takes(n int, lines ...string) {
	p.Helper()
	for i := range n {
		if rec := p.send("GET", "/a", lines...); rec.Code != http.StatusOK {
			p.Fatalf("request %d of %v = %d; want that all %d pass\n%s", i+1, lines, rec.Code, n, rec.Body)
		}
	}
}

// Another plan keeps what is used: 50 of 60 under free are 50 of 600 under pro.
func TestPlan_AnotherKeepsWhatIsUsed(t *testing.T) {
	server := redistest.Start(t)
	for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"} {
		yaml := plannedYAML("rate: 10/200d, plans: {free: 60/200d, pro: [600/200d, 20000/300d], team: 70/200d}, algorithm: " + algorithm)
		near, far := nodes(t, fmt.Sprintf("redis: {prefix: %s}\n", strings.ReplaceAll(algorithm, "_", ""))+yaml, redisstore.ClientConfig{Addrs: []string{server.Addr}})
		for store, w := range map[string][2]*testProxy{"memory": {newProxy(t, yaml)}, "redis": {near, far}} {
			t.Run(algorithm+"/"+store, func(t *testing.T) {
				user := "X-User: " + algorithm // both share what is counted in Redis
				one, other := w[0], w[1]
				if other == nil {
					other = one
				}
				one.takes(50, user, "X-Plan: free")
				if got := other.send("GET", "/a", user, "X-Plan: pro").Header().Get("RateLimit"); !strings.HasPrefix(got, `"quota-200d";r=549`) || !strings.Contains(got, `"quota-300d";r=19999`) {
					t.Errorf("RateLimit %q after 51 requests; want 549 and 19999", got)
				}
				one.sends(429, "GET", "/a", user)
				other.takes(9, user, "X-Plan: free")
				one.sends(429, "GET", "/a", user, "X-Plan: free")
				other.takes(10, user, "X-Plan: team") // what one remembers of the refusal does not hold
				one.sends(429, "GET", "/a", user, "X-Plan: team")
				one.takes(5, user, "X-Plan: pro")
				if got := one.send("GET", "/a", user, "X-Plan: pro").Header().Get("RateLimit"); !strings.HasPrefix(got, `"quota-200d";r=524`) || !strings.Contains(got, `"quota-300d";r=19993`) {
					t.Errorf("RateLimit %q after 76 requests; want 524, and 19993 of the seven under pro", got)
				}
				one.sends(429, "GET", "/a", user, "X-Plan: free")
			})
		}
	}
}

// A header that a client sends is not its plan, and does not reach the upstream.
func TestPlan_HeaderOfTrustedProxiesAlone(t *testing.T) {
	var seen []string
	url := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, strings.Join(slices.Concat(r.Header["X-Plan"], r.Header["X_plan"]), ","))
	})
	const limit = "limits: [{name: quota, key: 'header:X-User', rate: 1/1h, plan: 'header:x-plan', plans: {pro: 3/1h, none: none}}]"
	trusted := newProxy(t, forwardYAML(url, "client_ip: {trusted_proxies: [192.0.2.1]}", limit))
	trusted.sendsAll(times(2, 200), "GET", "/", "X-User: alice", "X-Plan: pro")
	trusted.sends(429, "GET", "/", "X-User: alice", "X-Plan: gold")
	trusted.sends(429, "GET", "/", "X-User: alice")
	trusted.sendsAll([]int{200, 429}, "GET", "/", "X-User: alice", "X-Plan: pro")
	trusted.takes(3, "X-User: alice", "X-Plan: none") // and is not counted
	trusted.sends(400, "GET", "/", "X-User: bob", "X-Plan: pro", "X-Plan: free")
	trusted.sends(400, "GET", "/", "X-User: bob", "X-Plan: free", "X_Plan: pro")
	trusted.sends(400, "GET", "/", "X-User: bob", "X-Plan: free", "Connection: X-Plan")
	if want := []string{"pro", "pro", "pro", "none", "none", "none"}; !slices.Equal(seen, want) {
		t.Errorf("the upstream saw %q; want %q", seen, want)
	}

	seen = nil
	other := newProxy(t, forwardYAML(url, "client_ip: {trusted_proxies: [198.51.100.1]}", limit+"}\n  - {name: free, match: {path: /free}, upstream: '"+url+"'"))
	other.sendsAll([]int{200, 429}, "GET", "/", "X-User: alice", "X-Plan: pro")
	other.sends(200, "GET", "/", "X-User: carol", "X-Plan: pro", "X-Plan: pro")
	other.sends(200, "GET", "/free", "X-Plan: pro")
	if want := []string{"", "", ""}; !slices.Equal(seen, want) {
		t.Errorf("the upstream saw %q of a client; want nothing", seen)
	}
	for _, want := range []string{`weir_plan_unknown_total{limit="quota",reason="missing",route="all"} 1`, `weir_plan_unknown_total{limit="quota",reason="unknown",route="all"} 1`} {
		if text := trusted.scrape("text/plain"); !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// A claim counts only of a token that is valid.
func TestPlan_ClaimOfAVerifiedToken(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	w := newProxy(t, "jwt: {secret: "+secret+"}\n"+limitYAML("{name: quota, key: 'header:X-User', rate: 1/1h, plan: jwt:plan, plans: {pro: 3/1h}}"))
	pro := bearer(t, secret, jwt.MapClaims{"plan": "pro"})
	w.takes(3, "X-User: alice", pro)
	w.sends(429, "GET", "/a", "X-User: alice", pro)
	for _, other := range []string{bearer(t, secret+"x", jwt.MapClaims{"plan": "pro"}), bearer(t, secret, jwt.MapClaims{"plan": []string{"pro"}}), bearer(t, secret, jwt.MapClaims{}), "Authorization: Basic pro"} {
		user := fmt.Sprintf("X-User: %x", other[len(other)-8:])
		w.takes(1, user, other)
		w.sends(429, "GET", "/a", user, other)
	}
	w.sends(400, "GET", "/a", "X-User: dave", pro, pro)
}

// A list of plans is reloaded when it changes; an override takes precedence.
func TestPlan_List(t *testing.T) {
	yaml := "keys: {user: {from: 'header:X-User', normalize: lower}}\n" +
		limitYAML("{name: quota, key: user, rate: 1/1h, plan: {list: plans.txt}, plans: {pro: 3/1h, partner: none}, overrides: {carol: 2/1h}}, {name: all, key: user, rate: 9/1d}")
	list := filepath.Join(t.TempDir(), "plans.txt")
	filetest.Write(t, "Alice=pro # since May\ncarol=pro\npartner=partner\n", list)
	w := newProxy(t, strings.ReplaceAll(yaml, "plans.txt", list))
	w.takes(3, "X-User: ALICE")
	w.sends(429, "GET", "/a", "X-User: alice")
	w.takes(1, "X-User: bob")
	w.sends(429, "GET", "/a", "X-User: bob")
	w.takes(2, "X-User: carol")
	w.sends(429, "GET", "/a", "X-User: carol")
	if got := w.send("GET", "/a", "X-User: partner").Header(); got.Get("RateLimit-Policy") != `"all";q=9;w=86400` || !strings.HasPrefix(got.Get("RateLimit"), `"all";r=8`) {
		t.Errorf("%v; want nothing about a limit that does not apply", got)
	}
	filetest.Write(t, "bob=pro\n", list)
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.takes(2, "X-User: bob")
	w.sends(429, "GET", "/a", "X-User: bob")
	w.sends(429, "GET", "/a", "X-User: alice")
	if want := `"quota";q=1;w=3600, "all";q=9;w=86400`; w.send("GET", "/a", "X-User: dave").Header().Get("RateLimit-Policy") != want {
		t.Errorf("a user without a plan does not see %s", want)
	}
}

// Explain and the state of a key name the plan and show its rates.
func TestPlan_IsShown(t *testing.T) {
	w := newProxy(t, plannedYAML("rate: 10/1h, plans: {free: 60/1h, pro: [600/1h, 20000/1d], partner: none}"))
	e := w.explains("GET", "/a", "X-User: alice", "X-Plan: pro")
	if l := e.Limits[0]; l.Plan != "pro" || l.Override || len(l.Windows) != 2 || l.Windows[0].Rate != "600/1h" || len(e.Upstream.Header["X-Plan"]) != 1 {
		t.Errorf("%+v; want the plan pro with its rates", l)
	}
	e = w.explains("GET", "/a", "X-User: alice", "X-Plan: partner")
	if l := e.Limits[0]; l.Plan != "partner" || l.Asked || l.Reason != "the plan partner has no limit" {
		t.Errorf("%+v; want that the limit does not apply", l)
	}

	w.takes(3, "X-User: alice", "X-Plan: pro")
	w.sends(200, "GET", "/a", "X-User: bob", "X-Plan: partner")
	alice := w.stands("header:X-User=alice")["a.quota"]
	if alice.Plan != "pro" || len(alice.Windows) != 2 || alice.Windows[0].Left != 597 || alice.Windows[1].Rate != "20000/1d" {
		t.Errorf("%+v; want what is left under pro, the plan of the last request", alice)
	}
	s, err := w.standing("header:X-User=carol")
	if err != nil || s.Limits[0].Plan != "" || s.Limits[0].Windows[0].Rate != "10/1h" || len(s.Notes) == 0 || !strings.Contains(s.Notes[0], "header:X-Plan") {
		t.Errorf("%+v, %v; want the limit's own rates, and a note that a request says its plan", s, err)
	}
	if d := w.decided(view.DecisionQuery{Key: alice.Hash, N: 1}); d.Limits[0].Plan != "pro" {
		t.Errorf("%+v; want the plan of the request", d)
	}
}

// A ban holds under every plan.
func TestPlan_ABanHoldsUnderEachPlan(t *testing.T) {
	w := newProxy(t, plannedYAML("rate: 10/1h, plans: {free: 60/1d, pro: [600/1m, 20000/1w]}"))
	w.takes(1, "X-User: alice", "X-Plan: free")
	w.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "header:X-User=alice")
	for _, plan := range []string{"free", "pro", "gold"} {
		w.sends(429, "GET", "/a", "X-User: alice", "X-Plan: "+plan)
	}
	w.changes(view.KeyChange{Action: view.KeyUnban}, "header:X-User=alice")
	for _, plan := range []string{"free", "pro", "gold"} {
		w.sends(200, "GET", "/a", "X-User: alice", "X-Plan: "+plan)
	}
	w.changes(view.KeyChange{Action: view.KeyReset}, "header:X-User=alice")
	w.takes(10, "X-User: alice")
}

// assigns makes the plans of c those of operators, until a time.
func (p *testProxy) assigns(until time.Time, changes ...view.KeyChange) {
	p.Helper()
	var all []directive.Directive
	for _, c := range changes {
		c.Action = view.KeyAssign
		some, err := p.Assignments(c)
		if err != nil {
			p.Fatal(err)
		}
		for _, d := range some {
			d.Until = until
			all = append(all, d)
		}
	}
	p.SetDirectives(directive.NewSet(all, time.Now()))
}

// What an operator has assigned takes precedence over what the limit reads, but not over overrides, and ends.
func TestPlan_Assigned(t *testing.T) {
	yaml := "client_ip: {trusted_proxies: [192.0.2.1]}\nkeys: {user: {from: 'header:X-User', sensitive: true}, org: {from: 'header:X-Org', on_missing: skip}}\n" +
		limitYAML("{name: quota, key: user, rate: 1/1h, plan: 'header:X-Plan', plans: {free: 2/1h, pro: 4/1h, partner: none}, overrides: {carol: 3/1h}}, "+
			"{name: bare, key: user, rate: 50/1d, plans: {pro: 500/1d}}, {name: org, key: org, rate: 90/1d, plans: {pro: 900/1d}}")
	w := newProxy(t, yaml)
	w.takes(2, "X-User: alice", "X-Plan: free")
	w.sends(429, "GET", "/a", "X-User: alice", "X-Plan: free")
	pro := func(user string) view.KeyChange { return view.KeyChange{KeyQuery: query("user=" + user), Plan: "pro"} }
	hour := time.Now().Add(time.Hour)
	w.assigns(hour, pro("alice"))
	w.takes(2, "X-User: alice", "X-Org: alice", "X-Plan: free")
	w.sends(429, "GET", "/a", "X-User: alice", "X-Plan: partner")
	w.takes(1, "X-User: bob")
	w.sends(429, "GET", "/a", "X-User: bob")
	e := w.explains("GET", "/a", "X-User: alice", "X-Org: alice", "X-Plan: free")
	until := "assigned by an operator until " + hour.UTC().Format(time.RFC3339)
	if l := e.Limits; l[0].Plan != "pro" || l[0].PlanFrom != until || l[1].PlanFrom != until || l[2].PlanFrom+l[2].Plan != "" {
		t.Errorf("%+v; want pro, %s, under the limits on the user alone", l, until)
	}
	if l := w.explains("GET", "/a", "X-User: bob", "X-Plan: free").Limits[0]; l.Plan != "free" || l.PlanFrom != "header:X-Plan" {
		t.Errorf("%+v; want free of header:X-Plan", l)
	}
	for _, l := range w.stands("user=alice") {
		if l.Plan != "pro" || !l.PlanUntil.Equal(hour) || len(l.Windows) != 1 {
			t.Errorf("%+v; want pro until %v", l, hour)
		}
	}
	partner := view.KeyChange{KeyQuery: query("user=alice"), Plan: "partner"}
	w.assigns(hour, partner)
	w.takes(2, "X-User: alice", "X-Plan: free")
	if l := w.stands("user=alice")["a.quota"]; l.Unknown != "its plan partner has no limit, until "+hour.UTC().Format(time.RFC3339) {
		t.Errorf("%+v; want that its plan has no limit, until when", l)
	}
	if s, err := w.standing("user=alice"); err != nil || strings.Contains(s.Verdict().Text, "cannot be read") {
		t.Errorf("%q, %v; want what the other limits do, as one that does not apply refuses nothing", s.Verdict().Text, err)
	}
	if l := w.stands("user=alice")["a.bare"]; l.Plan != "" || !l.PlanUntil.IsZero() {
		t.Errorf("%+v; want that a limit without this plan is as before", l)
	}
	w.assigns(time.Now().Add(20*time.Millisecond), partner)
	await.Until(t, "the assignment is over", func() bool { return w.send("GET", "/a", "X-User: alice").Code == 429 })

	carol := pro("carol") // under bare alone: her rates under quota are overridden
	w.assigns(hour, carol)
	w.takes(3, "X-User: carol")
	w.sends(429, "GET", "/a", "X-User: carol")
	for text, c := range map[string]view.KeyChange{
		`no limit on this key has the plan "gold"; write one of free, partner, pro`: {KeyQuery: query("user=alice"), Plan: "gold"},
		`the key is under overrides`:            {KeyQuery: query("user=carol"), Plan: "free"},
		`leave the limit out`:                   {KeyQuery: query("user=alice", "%quota"), Plan: "pro"},
		`no limit counts by "phone"`:            {KeyQuery: query("phone=1"), Plan: "pro"},
		`there is no route "b"; write one of a`: {KeyQuery: query("user=alice", "@b"), Plan: "pro"},
	} {
		c.Action = view.KeyAssign
		if got, err := w.Assignments(c); !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, %v; want %q", c, got, err, text)
		}
	}
	for _, d := range w.directives.Load().All() {
		if strings.Contains(fmt.Sprintf("%+v", d), "carol") {
			t.Errorf("%+v has the value of the key", d)
		}
	}
}

// A plan that was assigned under the previous secret stays assigned.
func TestPlan_AssignedUnderThePreviousSecret(t *testing.T) {
	yaml := func(secrets string) string {
		return "privacy: {" + secrets + "}\n" + limitYAML("{name: quota, key: 'header:X-User', rate: 1/1h, plans: {pro: 3/1h}}")
	}
	const first, second = "0123456789abcdef0123456789abcdef", "abcdef0123456789abcdef0123456789"
	was := newProxy(t, yaml("hash_secret: "+first))
	was.assigns(time.Now().Add(time.Hour), view.KeyChange{KeyQuery: query("header:X-User=alice"), Plan: "pro"})
	w := newProxy(t, yaml("hash_secret: "+second+", previous_secret: "+first))
	w.SetDirectives(was.directives.Load())
	w.takes(3, "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
	if l := w.stands("header:X-User=alice")["a.quota"]; l.Plan != "pro" {
		t.Errorf("%+v; want pro", l)
	}
	ends, err := w.Assignments(view.KeyChange{KeyQuery: query("header:X-User=alice"), Action: view.KeyUnassign})
	if now := was.directives.Load().All()[0].Name(); err != nil || !slices.ContainsFunc(ends, func(d directive.Directive) bool { return d.Name() == now }) {
		t.Errorf("%v, %v; want that %s is ended", ends, err, now)
	}
}
