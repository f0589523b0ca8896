package dashboard_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/view"
)

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
		"sms.phone", "1\u202f340 ±2", "96.5 %", "–", // its requests are not known
		"verify.guesses shadow", "100", "100.0 %", "–",
		"sms.phone", "48", "3.5 %", "50",
		"sms.spread", "–", "", "100", // how often it was refused is not known
		"sms.phone", "0", "0 %", "52",
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
	p := open(t, o).get("/dashboard/top")
	p.shows(t, http.StatusOK, "And 1\u202f450 keys less")
	if n, rows := len(element.FindAllString(p.text, -1)), strings.Count(p.text, `data-label="Requests"`); n > 3000 || rows != 50 {
		t.Errorf("%d elements in %d rows; want at most 3000 in 50", n, rows)
	}
}
