package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// sample is what top might be told.
func sample() topData {
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	key := func(id string, count, wrong int64) view.TopKey {
		return view.TopKey{Masked: "phone=" + id, Hash: "h" + id, ID: "id:" + id, Count: count, Error: wrong}
	}
	return topData{
		At: at, Minutes: 15,
		Nodes: admin.Nodes{Self: "n1", Nodes: []view.Member{
			{ID: "n1", Address: "10.0.0.1:9901", Generation: 4, Hash: "0123456789", Started: at.Add(-time.Hour)},
			{ID: "n2", Address: "10.0.0.2:9901", Generation: 3, Hash: "abc", Drift: true, Source: "file"},
		}, Lost: []view.Member{{ID: "n3", Seen: at.Add(-time.Minute)}}, Configurations: []admin.NodeGroup{
			{Hash: "0123456789", Generation: 4, Source: "redis", Nodes: []string{"n1"}}, {Hash: "abc", Generation: 3, Source: "file", Nodes: []string{"n2"}},
		}},
		Leader: view.Leadership{Node: "n1"},
		Limits: view.Limits{Limits: []view.Limit{
			{Route: "sms", Name: "quiet", Key: "ip", Rates: []string{"9/1h"}, Mode: "shadow"},
			{Route: "sms", Name: "phone", Key: "phone", Rates: []string{"1/60s", "5/1h"}, Mode: "enforce", Plans: []string{"free", "pro"}},
		}},
		Routes: view.Routes{Routes: []view.Route{{Name: "sms", Path: "/sms", Methods: []string{"POST"}, Upstream: "api"}, {Name: "ok", Path: "/ok", Respond: 204}}},
		Top: view.Top{Minutes: 15, Nodes: []view.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "n2"}}, Limits: []view.TopLimit{{
			Route: "sms", Limit: "phone", Key: "phone", Mode: "enforce",
			Requests: view.TopList{Total: 100, Keys: []view.TopKey{key("busy", 60, 0), key("bad", 30, 5)}},
			Refused:  view.TopList{Total: 25, Keys: []view.TopKey{key("bad", 25, 0)}},
		}}},
		Upstreams: view.Upstreams{Upstreams: []view.Upstream{{UpstreamState: view.UpstreamState{Name: "api", Waiting: 2}, Targets: []view.Target{{
			Target: "http://a", State: "ejected", InFlight: 3, Requests: 80, Errors: 8, Nodes: []view.TargetNode{{TargetState: view.TargetState{State: "healthy"}}, {TargetState: view.TargetState{State: "ejected"}}},
		}}}}},
		Statistic: view.Statistics{Minutes: []view.Minute{
			{At: at.Add(-2 * time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 7, Refused: 2, Limits: []view.LimitMinute{{Limit: "phone", Refused: 2}}}}},
			{At: at.Add(-time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 5, Refused: 1, Unavailable: 1, Limits: []view.LimitMinute{{Limit: "phone", Refused: 1, Unavailable: 1}}}}},
		}, Last: view.Minute{At: at.Add(-time.Minute), Routes: []view.RouteMinute{{Route: "sms", Requests: 6, Refused: 1}, {Route: "none", Requests: 1}}}},
	}
}

// rowsOf are the cells of a page.
func rowsOf(d topData, page topPage, order topOrder) string {
	var all []string
	for _, row := range d.table(page, order).rows {
		all = append(all, strings.Join(row.cells, "|"))
	}
	return strings.Join(all, "\n")
}

func TestTop_PagesTellWhatOperatorsAsk(t *testing.T) {
	d := sample()
	for page, want := range map[topPage]string{
		pageKeys:      "sms.phone|phone=bad|25|25-30|hbad\nsms.phone|phone=busy|0|60|hbusy",
		pageLimits:    "sms.phone|25|100|25 %|1/60s 5/1h|phone=bad|enforce|phone\nsms.quiet|0|0|-|9/1h|-|shadow|ip",
		pageRoutes:    "sms|6|12|3|POST /sms|api|1\nok|0|0|0|/ok|204|0",
		pageNodes:     "n1|ok|leads|4|01234567|10.0.0.1:9901||1h0m0s\nn2|no answer||3|abc|10.0.0.2:9901||-\nn3|lost 1m0s ago||0||||-",
		pageUpstreams: "api|http://a|ejected|1 of 2|8|80|3|2",
	} {
		if got := rowsOf(d, page, byRefused); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", page.title(), got, want)
		}
	}
	if want := "2 nodes; n1 leads; 1 of 2 serve generation 4, not n2 (generation 3 from file); 1 lost, the last n3 1m0s ago; 1 did not answer; last 60 s: 7 requests, 1 refused"; d.summary() != want {
		t.Errorf("summary is %q, want %q", d.summary(), want)
	}
	if got := rowsOf(d, pageKeys, byRequests); !strings.HasPrefix(got, "sms.phone|phone=busy|") {
		t.Errorf("ordered by requests, keys are %q", got)
	}
	for page := range pageCount {
		if empty := (topData{}).table(page, byRefused).empty; empty == "" {
			t.Errorf("%s without anything says nothing", page.title())
		}
	}
}

// A key that is in one of both lists only has in the other at most what those have that are not listed.
func TestTop_TellsWhatACountMayBe(t *testing.T) {
	d := sample()
	l := &d.Top.Limits[0]
	l.Requests.Floor, l.Refused.Floor = 40, 3
	l.Requests.Keys = l.Requests.Keys[:1]
	if got, want := rowsOf(d, pageKeys, byRefused), "sms.phone|phone=bad|25|0-40|hbad\nsms.phone|phone=busy|0-3|60|hbusy"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	l.Requests.Keys, l.Refused.Keys = nil, nil
	if got := d.table(pageKeys, byRefused); len(got.rows) > 0 || !strings.Contains(got.empty, "no key stands out") {
		t.Errorf("where nobody stands out it shows %+v", got)
	}
}

// While Redis is away, the rest is shown: what the node itself has seen.
func TestTop_WithoutRedis(t *testing.T) {
	d := sample()
	d.Away = "read nodes: redis circuit breaker open"
	d.Nodes, d.Leader, d.Statistic = admin.Nodes{}, view.Leadership{}, view.Statistics{}
	d.Top.Nodes = []view.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "all other nodes", Said: "not asked: redis"}}
	for page, want := range map[topPage]string{
		pageKeys:   "sms.phone|phone=bad|25|25-30|hbad\nsms.phone|phone=busy|0|60|hbusy",
		pageRoutes: "sms|-|-|-|POST /sms|api|-\nok|-|-|-|/ok|204|-",
		pageNodes:  "n1|ok||-|-|-|-|-\nall other nodes|not asked: redis||-|-|-|-|-",
	} {
		if got := rowsOf(d, page, byRefused); got != want {
			t.Errorf("%s: %q; want %q", page.title(), got, want)
		}
	}
	if want := "redis unreachable: only what this node has seen (read nodes: redis circuit breaker open)"; d.summary() != want {
		t.Errorf("it says %q, want %q", d.summary(), want)
	}
}

// What clients send cannot act on the terminal.
func TestTop_ShowsNoControlCharacters(t *testing.T) {
	d := sample()
	d.Top.Limits[0].Refused.Keys[0].Masked = "\x1b[31mred\u202e\n"
	if got := rowsOf(d, pageKeys, byRefused); !strings.Contains(got, "?[31mred??") {
		t.Errorf("shows %q", got)
	}
}

func TestTopOnce_PrintsAllPages(t *testing.T) {
	var out bytes.Buffer
	if err := printTop(&out, sample(), 20); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"keys of the last 15 minutes, as of 2026-01-31T09:30:00Z\n", "\nKEYS\n  LIMIT      KEY         REFUSED  REQUESTS  HASH\n  sms.phone  phone=bad   25       25-30     hbad\n",
		"\nLIMITS\n", "\nROUTES\n", "\nNODES\n", "\nUPSTREAMS\n  UPSTREAM  TARGET    STATE    HEALTHY ON",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printTop(&out, topData{}, 20); err != nil || !strings.Contains(out.String(), "no node is known") {
		t.Errorf("without anything: %v\n%s", err, out.String())
	}
}

// Of each table there are no more rows than were asked for, and what is left out is said.
func TestTopOnce_PrintsSoManyRows(t *testing.T) {
	d := sample()
	for i := range 500 {
		d.Limits.Limits = append(d.Limits.Limits, view.Limit{Route: fmt.Sprint("r", i), Name: "l"})
	}
	var out bytes.Buffer
	if err := printTop(&out, d, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"25-30     hbad\n  and 1 other row; -n prints more\n", "\n  and 501 other rows; -n prints more\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 25 {
		t.Errorf("%d lines", n)
	}
}
