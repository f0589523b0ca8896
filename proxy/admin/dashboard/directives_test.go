package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// given are what the operators of a weir have set.
type given struct {
	on   []directive.Directive
	done []string
}

// remove ends the directive of a name, or returns the error that a node returns.
func (g *given) remove(name string) error {
	before := len(g.on)
	g.on = slices.DeleteFunc(g.on, func(d directive.Directive) bool { return d.Name() == name })
	if len(g.on) == before {
		return fmt.Errorf("%w: it is not on", view.ErrKeyQuery)
	}
	return nil
}

// kind returns the directives that are bans, or those that are not.
func (g *given) kind(bans string) (on []directive.Directive) {
	for _, d := range g.on {
		if d.Network.IsValid() == (bans == "bans") {
			on = append(on, d)
		}
	}
	return on
}

func (g *given) change(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
	network, err := netip.ParsePrefix(c.Pairs[0].Value)
	if err != nil || c.Pairs[0].Key != "client_ip" {
		return view.KeyResult{}, view.ErrKeyQuery
	}
	g.done = append(g.done, fmt.Sprint(c.Action, " ", network, " ", c.Route, " ", c.For, " ", c.Reason))
	d := directive.Directive{Network: network, Route: c.Route, Who: admin.OperatorOf(ctx).Name, Reason: c.Reason, At: time.Now().UTC()}
	if c.Action == view.KeyUnban {
		return view.KeyResult{Network: &network, Everywhere: true}, g.remove(d.Name())
	}
	d.Until = d.At.Add(time.Duration(c.For))
	g.on = append(g.on, d)
	return view.KeyResult{Network: &network, Everywhere: true}, nil
}

func (g *given) set(ctx context.Context, c admin.MaintenanceChange) (admin.Maintenance, error) {
	g.done = append(g.done, fmt.Sprint(c.On, " ", c.Route, " ", c.For, " ", c.Reason))
	d := directive.Directive{Route: c.Route, Who: admin.OperatorOf(ctx).Name, Reason: c.Reason, At: time.Now().UTC()}
	if !c.On {
		return admin.Maintenance{Everywhere: true}, g.remove(d.Name())
	}
	d.Until = d.At.Add(time.Duration(c.For))
	if c.For == 0 {
		d.Until = d.At.Add(366 * 24 * time.Hour)
	}
	g.on = append(g.on, d)
	return admin.Maintenance{On: g.kind("maintenance"), Everywhere: true}, nil
}

// ordering is a weir with two operators, ann and ben, and a third, bob, who may only read.
func ordering(t *testing.T) (s *given, o admin.Options, ann *browser) {
	s, o = &given{}, options()
	o.Tokens = []config.Token{{Name: "ann", Text: token, Write: true}, {Name: "ben", Text: "ben-" + token, Write: true}, {Name: "bob", Text: "bob-" + token}}
	o.Bans = func(context.Context) (admin.Bans, error) { return admin.Bans{Networks: s.kind("bans")}, nil }
	o.Maintenance = func(context.Context) (admin.Maintenance, error) {
		return admin.Maintenance{On: s.kind("maintenance"), Everywhere: true}, nil
	}
	o.Change, o.SetMaintenance = s.change, s.set
	ann = open(t, o)
	ann.login(token)
	return s, o, ann
}

// at is the time of the i-th directive as the form has it.
func (g *given) at(i int) string { return g.on[i].At.Format(time.RFC3339Nano) }

// However many routes are under maintenance, each is marked; the table names the first.
func TestDirectives_MarkEachRoute(t *testing.T) {
	s, o, _ := ordering(t)
	for i := range 60 {
		s.on = append(s.on, directive.Directive{Route: fmt.Sprint("other-", i), Until: time.Now().Add(time.Hour)})
	}
	s.on = append(s.on, directive.Directive{Route: "sms", Until: time.Now().Add(time.Hour)})
	b := open(t, o)
	b.login(token)
	p := b.get("/dashboard/routes")
	p.shows(t, http.StatusOK, `sms <span class="tag warn">maintenance</span>`, "And 11 more: weir maintenance lists all.")
	if n := strings.Count(p.text, `<th scope="row">other-`); n != 50 {
		t.Errorf("%d are listed", n)
	}
}

func TestDirectives_AreAskedAboutThenDone(t *testing.T) {
	for _, row := range []struct {
		page       string
		form       []string
		asks, says string
		done       string
		listed     []string
		ends       string
	}{
		{"/dashboard/routes", []string{"kind", "maintenance", "route", "sms", "for", "30m", "reason", "a move"}, "Take route sms out of service for 30m?", "Maintenance has begun: route sms, on all nodes", "true sms 30m a move", []string{`<th scope="row">sms</th>`, `until <time datetime="20`, "ann", "a move"}, "Maintenance has ended: route sms, on all nodes."},
		{"/dashboard/routes", []string{"kind", "maintenance", "route", "", "for", "", "reason", "a move"}, "Take all routes out of service until it is ended?", "Maintenance has begun: all routes", "true  0s a move", []string{`<th scope="row">all routes</th>`, "until it is ended"}, "Maintenance has ended: all routes, on all nodes."},
		{"/dashboard/keys", []string{"kind", "ban", "network", "::/0", "route", "", "for", "1m", "reason", "all of it"}, "<strong>These are all clients with IPv6.</strong> All requests", "Banned for 1m: ::/0", "ban ::/0  1m all of it", []string{`<th scope="row">::/0</th>`}, "Unbanned: ::/0"},
		{"/dashboard/keys", []string{"kind", "ban", "network", " 203.0.113.77/26 ", "route", "sms", "for", "1h", "reason", "a flood"}, "Ban 203.0.113.64/26 for 1h?", "Banned for 1h: 203.0.113.64/26 on route sms, on all nodes.", "ban 203.0.113.64/26 sms 1h a flood", []string{`<th scope="row">203.0.113.64/26</th>`, "a flood"}, "Unbanned: 203.0.113.64/26 on route sms, on all nodes."},
	} {
		s, _, b := ordering(t)
		form := fields(row.form...)
		redirect, asked := b.follow("/dashboard/directives", form)
		redirect.shows(t, http.StatusSeeOther)
		at := redirect.Header.Get("Location")
		if !strings.HasPrefix(at, row.page+"?done=") || strings.Contains(at, "113") || strings.Contains(at, "sms") {
			t.Errorf("led to %s; want %s, without a value", at, row.page)
		}
		asked.shows(t, http.StatusOK, row.asks, `name="sure"`, "Reason: "+form.Get("reason"))
		if len(s.done) > 0 {
			t.Fatalf("%v was done before the answer", s.done)
		}
		if p := b.get(at); strings.Contains(p.text, `name="sure"`) {
			t.Error("reloaded, the page asks again")
		}
		form.Set("sure", "yes")
		redirect, landed := b.follow("/dashboard/directives", form)
		landed.shows(t, http.StatusOK, append(row.listed, row.says)...)
		if again := b.get(redirect.Header.Get("Location")); strings.Contains(again.text, row.says) {
			t.Error("reloaded, the page says again what was done")
		}
		if want := []string{row.done}; !reflect.DeepEqual(s.done, want) {
			t.Errorf("did %q, want %q", s.done, want)
		}
		end := append(row.form, "do", "end", "at", s.at(0))
		b.post("/dashboard/directives", fields(end...)).shows(t, http.StatusOK, row.ends)
		if len(s.on) > 0 {
			t.Errorf("%v holds; want nothing", s.on)
		}
	}
}

func TestDirectives_SayWhyNothingWasChanged(t *testing.T) {
	s, _, b := ordering(t)
	for says, form := range map[string][]string{
		"not a network; write one such as":          {"kind", "ban", "network", "203.0.113.7", "for", "1h", "reason", "r"},
		"a duration needs a unit":                   {"kind", "ban", "network", "203.0.113.0/24", "for", "", "reason", "r"},
		failed("Nothing was changed", "a duration"): {"kind", "maintenance", "for", "soon", "reason", "typed before"},
		"a reason is missing":                       {"kind", "maintenance", "for", "1h", "sure", "yes"},
		"a reason is missing; write one, for":       {"kind", "maintenance", "do", "end"},
	} {
		b.post("/dashboard/directives", fields(form...)).shows(t, http.StatusUnprocessableEntity, says, `<details class="act" open>`)
	}
	p := b.post("/dashboard/directives", fields("kind", "ban", "network", "203.0.113.7", "route", "sms", "for", "2h", "reason", "typed"))
	p.shows(t, http.StatusUnprocessableEntity, `value="203.0.113.7"`, "<option selected>sms</option>", `value="2h"`, `value="typed"`)
	if len(s.done) > 0 {
		t.Errorf("%v was done", s.done)
	}
}

// What somebody else has ended is ended, as was wanted; what somebody else has set again is told.
func TestDirectives_OfSomebodyElse(t *testing.T) {
	for _, row := range [][]string{{"kind", "maintenance", "route", "sms"}, {"kind", "ban", "network", "203.0.113.0/24"}} {
		s, _, b := ordering(t)
		sure := fields(append(row, "for", "1h", "reason", "r", "sure", "yes")...)
		b.post("/dashboard/directives", sure).shows(t, http.StatusOK, "1h")
		end := fields(append(row, "do", "end", "reason", "r", "at", s.at(0))...)
		s.on[0].At, s.on[0].Who = s.on[0].At.Add(time.Second), "ben"
		b.post("/dashboard/directives", end).shows(t, http.StatusConflict, failed("Nothing was changed", "ben set it again at"))
		if len(s.on) != 1 {
			t.Fatalf("%v was ended", row)
		}
		s.on = nil
		b.post("/dashboard/directives", end).shows(t, http.StatusOK, "Nothing to do: it has ended already.")
	}
}

// It ends between the look and the change: the node says so, and the page takes it as done.
func TestDirectives_EndMeanwhile(t *testing.T) {
	s, o, _ := ordering(t)
	set := o.SetMaintenance
	o.SetMaintenance = func(ctx context.Context, c admin.MaintenanceChange) (admin.Maintenance, error) {
		s.on = nil
		return set(ctx, c)
	}
	b := open(t, o)
	b.login(token)
	s.on = []directive.Directive{{Route: "sms", At: time.Now().UTC(), Until: time.Now().Add(time.Hour)}}
	end := fields("kind", "maintenance", "route", "sms", "do", "end", "reason", "r", "at", s.at(0))
	b.post("/dashboard/directives", end).shows(t, http.StatusOK, "Nothing to do: it has ended already.")
}

func TestDirectives_AreForRoleWrite(t *testing.T) {
	s, o, _ := ordering(t)
	s.on = []directive.Directive{{Route: "sms", At: time.Now(), Until: time.Now().Add(time.Hour)}, {Network: netip.MustParsePrefix("203.0.113.0/24"), At: time.Now(), Until: time.Now().Add(time.Hour)}}
	bob := open(t, o)
	bob.login("bob-" + token)
	for _, path := range []string{"/dashboard/routes", "/dashboard/keys"} {
		p := bob.get(path)
		p.shows(t, http.StatusOK, `until <time datetime="20`)
		if strings.Contains(p.text, "/dashboard/directives") {
			t.Errorf("%s: there is a form", path)
		}
	}
	bob.post("/dashboard/directives", fields("kind", "maintenance", "reason", "r", "sure", "yes")).shows(t, http.StatusForbidden, "Your token may look")
	if len(s.done) > 0 {
		t.Errorf("%v was done", s.done)
	}
}

// Each page says what is under maintenance; also one that is open, with its next numbers.
func TestMaintenance_IsABannerOfAllPages(t *testing.T) {
	s, _, b := ordering(t)
	if p := b.get("/"); strings.Contains(p.text, "Under maintenance") {
		t.Error("a banner without maintenance")
	}
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	s.on = []directive.Directive{{At: at, Until: at.Add(366 * 24 * time.Hour)}, {Route: "<sms>", Who: "ben", At: at, Until: at.Add(90 * time.Minute)}}
	want := `<strong>Under maintenance</strong>: all routes, until it is ended; route &lt;sms&gt;, by ben, until <time datetime="2026-01-31T09:30:00Z">2026-01-31 09:30:00 UTC</time>. <a href="/dashboard/routes#h-directives">`
	for _, path := range []string{"/", "/dashboard/routes", "/dashboard/keys", "/dashboard/explain", "/dashboard/nodes", "/dashboard/config"} {
		b.get(path).shows(t, http.StatusOK, want)
	}
	r := b.request(http.MethodGet, "/", "")
	r.Header.Set("HX-Request", "true")
	b.send(r).shows(t, http.StatusOK, `<div id="maintenance" hx-swap-oob="true">`+`<p class="banner warn">`+want)
	b.get("/dashboard/routes").shows(t, http.StatusOK, `<th scope="rowgroup">sms <span class="tag warn">maintenance</span>`)
	s.on = slices.Repeat(s.on, 3)
	b.get("/").shows(t, http.StatusOK, "; 3 more routes. <a")
}
