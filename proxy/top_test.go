package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/view"
)

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
