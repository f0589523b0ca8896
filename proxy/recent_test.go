package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/view"
)

// decided wants exactly one decision that q is about.
func (p *testProxy) decided(q view.DecisionQuery) view.Decided {
	p.Helper()
	found := p.Decisions(q)
	if len(found) != 1 {
		p.Fatalf("%d decisions for %+v, want one: %+v", len(found), q, found)
	}
	return found[0]
}

// newRememberingProxy makes a proxy that remembers each request, however fast they come.
func newRememberingProxy(t *testing.T, yaml string) *testProxy {
	w := newProxy(t, yaml)
	w.shared.observer.Every = 0
	return w
}

// Why a request was refused can be asked by its id: what each limit said, and of whom.
func TestDecisions_SayWhy(t *testing.T) {
	w := newRememberingProxy(t, operatedConfig)
	w.sendsAll([]int{200, 200}, "POST", "/send", phoneLine)
	rec := w.sends(429, "POST", "/send?x=secret", phoneLine)
	d := w.decided(view.DecisionQuery{RequestID: rec.Header().Get("X-Request-Id")})
	if d.Route != "send" || d.Method != "POST" || d.Path != "/send" || d.Status != 429 || d.Outcome != "refused" || time.Since(d.At) > time.Minute || d.TookMS < 0 {
		t.Errorf("%+v", d)
	}
	said := map[string]view.DecisionLimit{}
	for _, l := range d.Limits {
		said[l.Rate] = l
	}
	phone := said["phone-1h"]
	if phone.Result != "refused" || phone.Left == nil || *phone.Left != 0 || phone.WaitMS < 3500e3 || phone.WaitMS > 3600e3 ||
		phone.Masked != "phone=+86138****8000" || phone.Key != "phone" || phone.Hash != w.lines("request")[2]["key"] {
		t.Errorf("%+v; want the refusal as the log has it", phone)
	}
	if spare := said["spare-1h"]; spare.Result != "allowed" || *spare.Left != 48 || spare.ID != phone.ID {
		t.Errorf("%+v; want a limit that would have let pass", spare)
	}
	if c := said["country-1h"]; c.Masked != "country=CN" || c.Hash == phone.Hash {
		t.Errorf("%+v", c)
	}
	if p := said["pair-1h"]; p.Masked != "ip=192.0.2.1 phone=+86138****8000" {
		t.Errorf("%+v; want both parts of a joined key", p)
	}
	if strings.Contains(fmt.Sprint(w.Decisions(view.DecisionQuery{})), "13800138000") {
		t.Error("a number is shown")
	}
	// What is looked at can be acted on.
	w.changes(view.KeyChange{Action: view.KeyReset}, "phone="+phone.ID)
	w.sends(200, "POST", "/send", phoneLine)
	w.changes(view.KeyChange{Action: view.KeyReset}, "phone=hash:"+phone.Hash)
	w.sends(200, "POST", "/send", phoneLine)
}

// What passes and what is refused for other reasons is there as well, with the reason.
func TestDecisions_OfAllOutcomes(t *testing.T) {
	w := newRememberingProxy(t, `
keys: {phone: {from: "path:phone"}}
lists: {bad: {key: "header:X-User", values: [eve], action: deny}, good: {key: "header:X-User", values: [bob], action: bypass}}
routes:
  - {name: a, match: {path: "/a/{phone}/{x}"}, lists: [bad, good], respond: {body: ok}, limits: [{name: l, key: phone, rate: 3/1h}, {name: trial, key: "header:X-User", rate: 1/1h, mode: shadow}]}
  - {name: free, match: {path: /free}, respond: {body: ok}, limits: [{name: l, key: client_ip, rate: 1/1h, on_store_failure: allow}]}
  - {name: gone, match: {path: /gone}, upstream: "http://127.0.0.1:1"}
  - {name: b, match: {path: "/b/{x}"}, log_path: redacted, respond: {body: ok}, limits: [{name: strict, key: "header:X-User", rate: 1/1h}]}
`)
	id := func(rec interface{ Header() http.Header }) view.DecisionQuery {
		return view.DecisionQuery{RequestID: rec.Header().Get("X-Request-Id")}
	}
	first := w.decided(id(w.sends(200, "GET", "/a/13800138000/1", "X-User: alice")))
	if first.Outcome != "allowed" || first.Path != "/a/*/1" || len(first.Limits) != 2 || first.Limits[1].Result != "allowed" || first.Limits[1].Left != nil {
		t.Errorf("%+v", first)
	}
	second := w.decided(id(w.sends(200, "GET", "/a/13800138000/1", "X-User: alice")))
	if s := second.Limits[0]; second.Outcome != "shadow_refused" || s.Result != "shadow_refused" || s.WaitMS < 3500e3 || s.Masked != "header:X-User=alice" {
		t.Errorf("%+v; want what a limit in shadow mode would have refused, and of whom", second)
	}
	if d := w.decided(id(w.sends(403, "GET", "/a/1/1", "X-User: eve"))); d.Outcome != "rejected" || d.List != "bad" || len(d.Limits) != 0 {
		t.Errorf("%+v", d)
	}
	if d := w.decided(id(w.sends(200, "GET", "/a/1/1", "X-User: bob"))); d.Outcome != "allowed" || d.List != "good" || !d.Exempt {
		t.Errorf("%+v", d)
	}
	if d := w.decided(id(w.sends(400, "GET", "/b/1"))); d.Outcome != "rejected" || !strings.Contains(d.Error, "header:X-User: key missing") || d.Route != "b" {
		t.Errorf("%+v; want the reason", d)
	}
	if d := w.decided(id(w.sends(404, "GET", "/nowhere/13800138000"))); d.Route != "" || d.Path != "/nowhere/*" || d.Status != 404 {
		t.Errorf("%+v; want a path without what may be a number", d)
	}
	if d := w.decided(id(w.sends(200, "GET", "/b/alice", "X-User: alice"))); d.Path != "/b/*" {
		t.Errorf("path %s; want it redacted", d.Path)
	}
	if d := w.decided(id(w.sends(502, "GET", "/gone"))); d.Outcome != "allowed" || d.Status != 502 || d.Error == "" || d.Upstream == "" {
		t.Errorf("%+v; want what came of an upstream that nobody serves", d)
	}
	w.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
	if d := w.decided(id(w.sends(200, "GET", "/b/bob", "X-User: carol"))); d.Fallback != "local" || d.Limits[0].Result != "allowed" {
		t.Errorf("%+v; want the policy that decided", d)
	}
	if d := w.decided(id(w.sends(200, "GET", "/free", "X-User: carol"))); d.Fallback != "allow" || len(d.Limits) != 0 || d.Outcome != "allowed" {
		t.Errorf("%+v; want that no limit was asked", d)
	}
}

func TestDecisions_Filters(t *testing.T) {
	w := newRememberingProxy(t, operatedConfig)
	w.sends(404, "GET", "/wp-login.php")
	w.sendsAll([]int{200, 200, 429, 429}, "POST", "/send", phoneLine)
	w.sends(200, "POST", "/send", "X-Phone: +8613900139000")
	w.sends(200, "POST", "/verify", phoneLine, "X-User: a")
	all := w.Decisions(view.DecisionQuery{})
	for i := range all[1:] {
		if all[i+1].At.After(all[i].At) {
			t.Errorf("%v after %v; want the last first", all[i].At, all[i+1].At)
		}
	}
	hash, id := all[0].Limits[0].Hash, all[0].Limits[0].ID
	for _, c := range []struct {
		q    view.DecisionQuery
		want int
	}{
		{view.DecisionQuery{}, 7},
		{view.DecisionQuery{N: 2}, 2},
		{view.DecisionQuery{Route: "verify"}, 1},
		{view.DecisionQuery{Route: "none"}, 1},
		{view.DecisionQuery{Outcome: "refused"}, 2},
		{view.DecisionQuery{Limit: "phone"}, 5},
		{view.DecisionQuery{Limit: "phone", Outcome: "refused"}, 2},
		{view.DecisionQuery{Limit: "spare", Outcome: "refused"}, 0},
		{view.DecisionQuery{Outcome: "shadow_refused"}, 1},
		{view.DecisionQuery{Key: hash}, 5},
		{view.DecisionQuery{Key: id}, 5},
		{view.DecisionQuery{Key: "000000000000"}, 0},
		{view.DecisionQuery{Before: all[1].At}, 5},
		{view.DecisionQuery{RequestID: "unknown"}, 0},
	} {
		if got := w.Decisions(c.q); len(got) != c.want {
			t.Errorf("%d decisions for %+v, want %d", len(got), c.q, c.want)
		}
	}
}

// A refusal is found by its id when others are refused many times after it.
func TestDecisions_AFloodPushesNobodyOut(t *testing.T) {
	w := newRememberingProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	rec := w.sends(429, "GET", "/a", "X-User: alice")
	w.sends(200, "GET", "/a", "X-User: eve")
	w.sendsAll(times(2000, 429), "GET", "/a", "X-User: eve")
	w.decided(view.DecisionQuery{RequestID: rec.Header().Get("X-Request-Id")})
}

// Records are copies: neither a later request nor a reload changes them.
func TestDecisions_OutliveAReload(t *testing.T) {
	w := newRememberingProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	rec := w.sends(429, "GET", "/a", "X-User: alice")
	w.reloads(limitYAML("{name: other, key: client_ip, rate: 100/1h}"))
	d := w.decided(view.DecisionQuery{RequestID: rec.Header().Get("X-Request-Id")})
	if l := d.Limits[0]; l.Limit != "l" || l.Key != "header:X-User" || l.Masked != "header:X-User=alice" {
		t.Errorf("%+v; want it as it was decided", l)
	}
}

// Over a connection whose buffer is used again, what is remembered stays what it was.
func TestDecisions_OverAConnection(t *testing.T) {
	f := startServer(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	f.shared.observer.Every = 0
	c := f.dial("")
	for i := range 20 {
		c.Send(fmt.Sprintf("GET /a?%d HTTP/1.1\r\nHost: h\r\nX-User: user-%02d-is-called-so\r\n\r\n", i, i))
		c.WantStatus(200)
	}
	c.Send("PUT /nowhere/1 HTTP/1.1\r\nHost: h\r\n\r\n")
	c.WantStatus(404)
	seen := map[string]bool{}
	for _, d := range f.Decisions(view.DecisionQuery{Route: "a"}) {
		if d.Method != "GET" || d.Path != "/a" || !strings.HasPrefix(d.Limits[0].Masked, "header:X-User=user-") || !strings.HasSuffix(d.Limits[0].Masked, "-is-called-so") {
			t.Errorf("%+v", d)
		}
		seen[d.Limits[0].Hash] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d keys, want 20", len(seen))
	}
}

func TestDecisions_Concurrently(t *testing.T) {
	w := newRememberingProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 5/1h}"))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 200 {
				w.send("GET", "/a", fmt.Sprint("X-User: ", (i+j)%7))
				if j%50 == 0 {
					w.Decisions(view.DecisionQuery{})
					w.Top(view.TopQuery{})
				}
			}
		})
	}
	all.Wait()
	refused := w.Decisions(view.DecisionQuery{Outcome: "refused", N: 1000})
	allowed := w.Decisions(view.DecisionQuery{Outcome: "allowed", N: 1000})
	if len(allowed) != 35 || len(refused) != 765 {
		t.Errorf("%d allowed and %d refused; want 35 and the rest", len(allowed), len(refused))
	}
}

// Of requests that pass only some are noted where there are many, and none is missed
// where there are few.
func TestDecisions_SomeOfWhatIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 100000/1h}"))
		for range 100 {
			w.sends(200, "GET", "/a", "X-User: alice")
			time.Sleep(decisions.AllowedEvery)
		}
		if got := len(w.Decisions(view.DecisionQuery{N: 1000})); got != 100 {
			t.Errorf("%d of 100 requests are known, which came one by one", got)
		}
		w.sendsAll(times(1000, 200), "GET", "/a", "X-User: alice")
		if got := len(w.Decisions(view.DecisionQuery{N: 1000})) - 100; got != 1 {
			t.Errorf("%d of 1000 requests are noted, which came at one moment; want one", got)
		}
	})
}

// The sentence is there for what was served, with the refusing limit first wherever it stands in the file.
func TestDecision_OfARequest(t *testing.T) {
	w := newRememberingProxy(t, limitYAML("{name: wide, key: 'header:X-User', rates: [100/1h, 500/1d]}, {name: narrow, key: 'header:X-User', rate: 1/10m}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	rec := w.sends(429, "GET", "/a", "X-User: alice")
	d := w.decided(view.DecisionQuery{RequestID: rec.Header().Get("X-Request-Id")})
	passes := d.At.Add(time.Duration(d.Limits[0].WaitMS) * time.Millisecond).Add(time.Second - 1).Truncate(time.Second).Format(" 15:04") // before midnight with the day in front
	if d.Limits[0].Limit != "narrow" || !strings.HasPrefix(d.Summary, "refused by a.narrow 1/10m, passes ") ||
		!strings.Contains(d.Summary, passes) || !strings.HasSuffix(d.Summary, " UTC (10m)") {
		t.Errorf("%q of %s; want narrow first", d.Summary, fmt.Sprint(d.Limits))
	}
}

// topOf is what p has seen of one limit.
func (p *testProxy) topOf(limit string) view.TopLimit {
	p.Helper()
	t := p.Top(view.TopQuery{Limit: limit})
	if len(t.Limits) != 1 {
		p.Fatalf("%+v; want the one limit", t)
	}
	return t.Limits[0]
}

// Who sends most, and who is refused most, is told by limit, masked, and can be acted on.
func TestTop_Keys(t *testing.T) {
	w := newProxy(t, operatedConfig)
	for i := range 12 {
		w.send("POST", "/send", phoneLine)
		if i%4 == 0 {
			w.send("POST", "/send", "X-Phone: +8613900139000")
		}
	}
	l := w.topOf("phone")
	first, second := l.Requests.Keys[0], l.Requests.Keys[1]
	if l.Requests.Total != 15 || first.Count != 12 || first.Error != 0 || first.Masked != "phone=+86138****8000" || second.Count != 3 || l.Key != "phone" || l.Mode != "enforce" {
		t.Errorf("%+v", l)
	}
	if r := l.Refused; r.Total != 11 || r.Keys[0].Count != 10 || r.Keys[0].ID != first.ID || r.Floor != 0 {
		t.Errorf("%+v; want 10 and 1 refused", r)
	}
	if hash := w.lines("request")[14]["key"]; first.Hash != hash {
		t.Errorf("hash %s; want that of the log, %s", first.Hash, hash)
	}
	if c := w.topOf("country"); c.Requests.Keys[0].Masked != "country=CN" || len(c.Refused.Keys) != 0 {
		t.Errorf("%+v", c)
	}
	if trial := w.topOf("trial"); trial.Mode != "shadow" || trial.Refused.Total == 0 || trial.Refused.Keys[0].ID != first.ID {
		t.Errorf("%+v; want whom a limit in shadow mode would refuse", trial)
	}
	w.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "phone="+first.ID, "@verify")
	w.sends(429, "POST", "/verify", phoneLine, "X-User: a")
	if got := len(w.Top(view.TopQuery{Route: "verify"}).Limits); got != 2 {
		t.Errorf("%d limits of a route, want 2", got)
	}
	if got := w.Top(view.TopQuery{N: 1, Limit: "phone"}).Limits[0].Requests; len(got.Keys) != 1 || got.Floor != 3 {
		t.Errorf("%+v; want the first, and how many the others may have", got)
	}
}

// What is older than was asked for is left out, and in the end forgotten.
func TestTop_LastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
		for i := range 20 {
			for range i + 1 {
				w.send("GET", "/a", "X-User: alice")
			}
			time.Sleep(time.Minute)
		}
		// Minutes 0 to 19 have 1 to 20 requests; it is minute 20 now.
		for minutes, want := range map[int]int64{1: 0, 2: 20, 4: 20 + 19 + 18, 15: 20*21/2 - 6*7/2, 0: 20*21/2 - 6*7/2, 99: 20*21/2 - 6*7/2} {
			got := w.Top(view.TopQuery{Minutes: minutes}).Limits[0].Requests
			if got.Total != want {
				t.Errorf("%d requests in %d minutes, want %d", got.Total, minutes, want)
			}
		}
		time.Sleep(decisions.TopSlices * time.Minute)
		if got := w.Top(view.TopQuery{}).Limits[0].Requests; got.Total != 0 || len(got.Keys) != 0 {
			t.Errorf("%+v; want it forgotten", got)
		}
	})
}

// A reload goes on counting a limit that still counts by the same key, and begins anew
// with one that does not: what was a phone number must not be shown as something else.
func TestTop_Reload(t *testing.T) {
	file := func(key string) string {
		return "keys: {who: " + key + "}\n" + limitYAML("{name: l, key: who, rate: 100/1h}")
	}
	w := newProxy(t, file("{from: 'header:X-User'}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.reloads(file("{from: 'header:X-User', on_missing: skip}"))
	if got := w.topOf("l").Requests.Total; got != 1 {
		t.Errorf("%d requests, want the one from before", got)
	}
	w.reloads(file("{from: host}"))
	if got := w.topOf("l").Requests.Total; got != 0 {
		t.Errorf("%d requests under another key, want none", got)
	}
	w.reloads(limitYAML("{name: other, key: client_ip, rate: 100/1h}"))
	w.reloads(file("{from: host}"))
	if got := w.topOf("l").Requests.Total; got != 0 {
		t.Errorf("%d requests of a limit that was removed, want none", got)
	}
}

// Nodes that see different parts of the traffic know together who is first, and how
// wrong they may be.
func TestMergeTops(t *testing.T) {
	salt := NewSalt()
	exact := map[string]int64{}
	var all []view.Top
	names := map[string]string{}
	for range 3 {
		w := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 100000/1h}"), func(o *Options) { o.LogSalt = func() Salt { return salt } })
		for range 600 {
			user := fmt.Sprint("user-", int(rand.ExpFloat64()*40))
			w.sends(200, "GET", "/a", "X-User: "+user)
			exact[user]++
		}
		all = append(all, w.Top(view.TopQuery{N: 200}))
		for user := range exact {
			for _, l := range w.stands("header:X-User=" + user) {
				names[l.ID] = user
			}
		}
	}
	got := decisions.MergeTops(200, all...)
	list := got.Limits[0].Requests
	if len(got.Limits) != 1 || list.Total != 1800 || got.Minutes != decisions.TopSlices || list.Floor > 3*600/64+3 {
		t.Fatalf("%+v; want all requests of one limit", got)
	}
	for _, k := range list.Keys {
		n := exact[names[k.ID]]
		if k.Count < n || k.Count-k.Error > n || k.Error > list.Floor {
			t.Errorf("%s: %+v, and it had %d", names[k.ID], k, n)
		}
	}
	if !slices.IsSortedFunc(list.Keys, func(a, b view.TopKey) int { return int(b.Count - a.Count) }) {
		t.Error("not those with the most first")
	}
	if cut := decisions.MergeTops(3, all...).Limits[0].Requests; len(cut.Keys) != 3 || cut.Keys[0] != list.Keys[0] || cut.Floor < list.Floor {
		t.Errorf("%+v; want the first three", cut)
	}
}
