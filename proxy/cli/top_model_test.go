package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// sample is what top might be told.
func sample() topData {
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	key := func(id string, count, wrong int64) admin.TopKey {
		return admin.TopKey{Masked: "phone=" + id, Hash: "h" + id, ID: "id:" + id, Count: count, Error: wrong}
	}
	return topData{
		At: at, Minutes: 15,
		Nodes: admin.Nodes{Self: "n1", Nodes: []admin.Member{
			{ID: "n1", Address: "10.0.0.1:9901", Generation: 4, Hash: "0123456789", Started: at.Add(-time.Hour)},
			{ID: "n2", Address: "10.0.0.2:9901", Generation: 3, Hash: "abc", Drift: true, Source: "file"},
		}, Lost: []admin.Member{{ID: "n3", Seen: at.Add(-time.Minute)}}, Configurations: []admin.NodeGroup{
			{Hash: "0123456789", Generation: 4, Source: "redis", Nodes: []string{"n1"}}, {Hash: "abc", Generation: 3, Source: "file", Nodes: []string{"n2"}},
		}},
		Leader: admin.Leadership{Node: "n1"},
		Limits: admin.Limits{Limits: []admin.Limit{
			{Route: "sms", Name: "quiet", Key: "ip", Rates: []string{"9/1h"}, Mode: "shadow"},
			{Route: "sms", Name: "phone", Key: "phone", Rates: []string{"1/60s", "5/1h"}, Mode: "enforce", Plans: []string{"free", "pro"}},
		}},
		Routes: admin.Routes{Routes: []admin.Route{{Name: "sms", Path: "/sms", Methods: []string{"POST"}, Upstream: "api"}, {Name: "ok", Path: "/ok", Respond: 204}}},
		Top: admin.Top{Minutes: 15, Nodes: []admin.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "n2"}}, Limits: []admin.TopLimit{{
			Route: "sms", Limit: "phone", Key: "phone", Mode: "enforce",
			Requests: admin.TopList{Total: 100, Keys: []admin.TopKey{key("busy", 60, 0), key("bad", 30, 5)}},
			Refused:  admin.TopList{Total: 25, Keys: []admin.TopKey{key("bad", 25, 0)}},
		}}},
		Upstreams: admin.Upstreams{Upstreams: []admin.Upstream{{UpstreamState: proxy.UpstreamState{Name: "api", Waiting: 2}, Targets: []admin.Target{{
			Target: "http://a", State: "ejected", InFlight: 3, Requests: 80, Errors: 8, Nodes: []admin.TargetNode{{TargetState: proxy.TargetState{State: "healthy"}}, {TargetState: proxy.TargetState{State: "ejected"}}},
		}}}}},
		Statistic: admin.Statistics{Minutes: []admin.Minute{
			{At: at.Add(-2 * time.Minute), Routes: []admin.RouteMinute{{Route: "sms", Requests: 7, Refused: 2, Limits: []admin.LimitMinute{{Limit: "phone", Refused: 2}}}}},
			{At: at.Add(-time.Minute), Routes: []admin.RouteMinute{{Route: "sms", Requests: 5, Refused: 1, Unavailable: 1, Limits: []admin.LimitMinute{{Limit: "phone", Refused: 1, Unavailable: 1}}}}},
		}, Last: admin.Minute{At: at.Add(-time.Minute), Routes: []admin.RouteMinute{{Route: "sms", Requests: 6, Refused: 1}, {Route: "none", Requests: 1}}}},
	}
}

// sampleModel is top with the sample on a terminal of the usual size.
func sampleModel() topModel {
	m := topModel{source: "127.0.0.1:9901"}
	m, _ = m.update(topSize{100, 24})
	m, _ = m.update(topFetched{data: sample()})
	return m
}

// pressKeys is m after these keys: names in <>, and letters as they are.
func pressKeys(m topModel, keys string) (topModel, topEffect) {
	var e topEffect
	for keys != "" {
		p := keyPress{letter: []rune(keys)[0]}
		keys = keys[len(string(p.letter)):]
		if p.letter == '<' {
			name, rest, _ := strings.Cut(keys, ">")
			p, keys = keyPress{name: name}, rest
		}
		m, e = m.update(p)
	}
	return m, e
}

// text is the whole screen.
func text(m topModel) string {
	var all []string
	for _, line := range m.view() {
		all = append(all, strings.TrimRight(line.text, " "))
	}
	return strings.Join(all, "\n")
}

// rowsOf are the cells of a page.
func rowsOf(m topModel, page topPage) (all []string) {
	for _, row := range m.data.table(page, m.order).rows {
		all = append(all, strings.Join(row.cells, "|"))
	}
	return all
}

func TestTop_PagesTellWhatOperatorsAsk(t *testing.T) {
	m := sampleModel()
	for page, want := range map[topPage][]string{
		pageKeys:      {"sms.phone|phone=bad|25|25-30|hbad", "sms.phone|phone=busy|0|60|hbusy"},
		pageLimits:    {"sms.phone|25|100|25 %|1/60s 5/1h|phone=bad|enforce|phone", "sms.quiet|0|0|-|9/1h|-|shadow|ip"},
		pageRoutes:    {"sms|6|12|3|POST /sms|api|1", "ok|0|0|0|/ok|204|0"},
		pageNodes:     {"n1|ok|leads|4|01234567|10.0.0.1:9901||1h0m0s", "n2|no answer||3|abc|10.0.0.2:9901||-\nn3|lost 1m0s ago||0||||-"},
		pageUpstreams: {"api|http://a|ejected|1 of 2|8|80|3|2"},
	} {
		if got := rowsOf(m, page); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", page.title(), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if want := "2 nodes; n1 leads; 1 of 2 serve generation 4, not n2 (generation 3 from file); 1 lost, the last n3 1m0s ago; 1 did not answer; last 60 s: 7 requests, 1 refused"; m.data.summary() != want {
		t.Errorf("summary is %q, want %q", m.data.summary(), want)
	}
	m, _ = pressKeys(m, "s")
	if got := rowsOf(m, pageKeys); !strings.Contains(got[0], "busy") {
		t.Errorf("ordered by requests, keys are %q", got)
	}
}

// Keys lead to pages and rows; a row stays selected when others move.
func TestTop_SelectsRows(t *testing.T) {
	m := sampleModel()
	for keys, want := range map[string]topPage{"<tab>": pageLimits, "<left>": pageUpstreams, "4": pageNodes, "5<right>": pageKeys, "<backtab><backtab>": pageNodes} {
		if got, _ := pressKeys(m, keys); got.page != want {
			t.Errorf("%s leads to %v, want %v", keys, got.page, want)
		}
	}
	for keys, want := range map[string]string{"": "bad", "<down>": "busy", "<down><down><down>": "busy", "j<up>": "bad", "jk": "bad", "<end>": "busy", "<end><home>": "bad", "<pgdn>": "busy", "<pgdn><pgup>": "bad", "<down>s": "busy"} {
		got, _ := pressKeys(m, keys)
		if row, found := got.selected(); !found || row.key.id != "id:"+want {
			t.Errorf("%q selects %+v, want %s", keys, row, want)
		}
	}
	m, _ = pressKeys(m, "<down>")
	m, _ = m.update(topFetched{data: topData{}})
	if _, found := m.selected(); found {
		t.Error("a row of nothing is selected")
	}
	m, _ = pressKeys(m, "<down>b")
	if m.prompt != nil || !strings.Contains(m.note, "no key is selected") {
		t.Errorf("without keys there is a prompt, or %q", m.note)
	}
	m, _ = m.update(topFetched{data: sample()})
	if row, _ := m.selected(); row.key.id != "id:busy" {
		t.Errorf("the selection came back as %+v", row)
	}
}

// Nothing is changed without a reason and a yes.
func TestTop_AsksBeforeItChanges(t *testing.T) {
	m := sampleModel()
	for keys, note := range map[string]string{
		"b<esc>": "nothing was changed", "b<enter>she called<enter>n": "nothing was changed", "r<enter>": "", "rwhy<enter>x": "", "b<backspace><backspace>soon<enter>": "", "u": "",
	} {
		got, e := pressKeys(m, keys)
		if e != (topEffect{}) || got.note != note {
			t.Errorf("%s does %+v and says %q", keys, e, got.note)
		}
	}
	if got, _ := pressKeys(m, "r<enter>"); !strings.Contains(text(got), "Reset phone=bad, why? _  (write a few words") {
		t.Errorf("without a reason:\n%s", text(got))
	}
	if got, _ := pressKeys(m, "b<backspace><backspace>soon<enter>"); !strings.Contains(text(got), "for how long? soon_  (a duration has a unit") {
		t.Errorf("with no length of time:\n%s", text(got))
	}
	if got, _ := pressKeys(m, "agold<enter>"); !strings.Contains(text(got), "Plan of phone=bad (free, pro; empty ends an assignment)? gold_  (no such plan)") {
		t.Errorf("with an unknown plan:\n%s", text(got))
	}
	if got, _ := pressKeys(m, "apro<enter><enter>paid<enter>"); !strings.Contains(text(got), `Plan pro for 30d: phone=bad under all limits that count by phone, because of "paid"? y or n`) {
		t.Errorf("before the assignment:\n%s", text(got))
	}
	got, e := pressKeys(m, "b<backspace><backspace>2h<enter>she called, 打电话<enter>")
	if want := `Ban for 2h: phone=bad under all limits that count by phone, because of "she called, 打电话"? y or n`; !strings.Contains(text(got), want) || e.act != nil {
		t.Errorf("before the ban:\n%s\nwant %s", text(got), want)
	}
	for keys, want := range map[string]proxy.KeyChange{
		"b<enter>spam<enter>y":             {Action: proxy.KeyBan, For: proxy.Span(time.Hour), Reason: "spam"},
		"jr she called <enter>Y":           {Action: proxy.KeyReset, Reason: "she called"},
		"ux<backspace>y<enter>y":           {Action: proxy.KeyUnban, Reason: "y"},
		"apro<enter><enter>paid<enter>y":   {Action: proxy.KeyAssign, Plan: "pro", For: proxy.Span(30 * 24 * time.Hour), Reason: "paid"},
		"apro<enter>7d<enter>paid<enter>y": {Action: proxy.KeyAssign, Plan: "pro", For: proxy.Span(7 * 24 * time.Hour), Reason: "paid"},
		"a<enter>unpaid<enter>y":           {Action: proxy.KeyUnassign, Reason: "unpaid"},
		"2b<enter>spam<enter>y":            {Action: proxy.KeyBan, For: proxy.Span(time.Hour), Reason: "spam"},
	} {
		got, e := pressKeys(m, keys)
		if e.act == nil || got.prompt != nil {
			t.Errorf("%s does nothing, and shows\n%s", keys, text(got))
			continue
		}
		c := e.act.change
		if c.Action != want.Action || c.Plan != want.Plan || c.For != want.For || c.Reason != want.Reason || len(c.Pairs) != 1 || c.Pairs[0].Key != "phone" || !strings.HasPrefix(c.Pairs[0].Value, "id:b") {
			t.Errorf("%s does %+v, want %+v", keys, c, want)
		}
	}
}

// What was done is told, with how the key stands since; and all is looked at anew.
func TestTop_TellsWhatWasDone(t *testing.T) {
	m := sampleModel()
	at := time.Now()
	m, e := pressKeys(m, "<enter>")
	if e.act == nil || e.act.change.Action != "" {
		t.Fatalf("enter does %+v, want to look the key up", e)
	}
	stands := topDone{at: at, notes: []string{"a note"}, limits: []proxy.LimitStanding{{
		Route: "sms", Limit: "phone", ID: "id:bad", Masked: "bad", Windows: []proxy.WindowStanding{{Rate: "5/1h", Used: 5, Next: at.Add(90 * time.Second)}},
	}}}
	m, e = m.update(topActed{act: *e.act, done: stands})
	for _, want := range []string{"phone: phone=bad", "sms.phone  5/1h  5     0     1m30s", "note: a note"} {
		if !strings.Contains(text(m), want) || e.fetch {
			t.Errorf("no %q in\n%s", want, text(m))
		}
	}
	stands.changed, stands.where = true, "on all nodes"
	ban := topAct{keyOfRow{masked: "phone=bad"}, proxy.KeyChange{Action: proxy.KeyBan, For: proxy.Span(time.Hour)}}
	m, e = m.update(topActed{act: ban, done: stands})
	if want := "banned for 1h: phone=bad under 1 limit, on all nodes"; m.note != want || !e.fetch {
		t.Errorf("says %q and does %+v, want %q and to look", m.note, e, want)
	}
	stands.where = "on this node only"
	for action, want := range map[proxy.KeyAction]string{proxy.KeyReset: "reset phone=bad under 1 limit, on this node only", proxy.KeyUnban: "unbanned phone=bad under 1 limit, on this node only", proxy.KeyAssign: "plan  for 1h: phone=bad under 1 limit, on this node only", proxy.KeyUnassign: "ended the plan of phone=bad under 1 limit, on this node only"} {
		ban.change.Action = action
		if m, _ = m.update(topActed{act: ban, done: stands}); m.note != want {
			t.Errorf("says %q, want %q", m.note, want)
		}
	}
	stands.limits[0].Unaffected, stands.now, ban.change.Action = true, "still refused by the ban of 203.0.113.0/24", proxy.KeyUnban
	m, _ = m.update(topActed{act: ban, done: stands})
	if want := "there was nothing to end for phone=bad under 1 limit"; m.note != want || !strings.Contains(text(m), stands.now) {
		t.Errorf("says %q, want %q and %q in\n%s", m.note, want, stands.now, text(m))
	}
	m, e = m.update(topActed{act: ban, err: errors.New("the token of support may only read\x1b[2J")})
	if want := "not done: the token of support may only read?[2J"; m.note != want || e.fetch {
		t.Errorf("says %q, want %q", m.note, want)
	}
	if m, _ = pressKeys(m, "<esc>"); m.note != "" || m.standing != nil {
		t.Errorf("after esc there is still\n%s", text(m))
	}
}

// A proposed answer is replaced by what is typed, and edited after a backspace.
func TestTop_ReplacesAProposedAnswer(t *testing.T) {
	for keys, want := range map[string]string{"b": "1h", "b10m": "10m", "b<backspace>0m": "10m", "b2<backspace>3d": "3d", "bx<esc>b": "1h"} {
		m, _ := pressKeys(sampleModel(), keys)
		if line := "Ban phone=bad for how long? " + want + "_"; !strings.Contains(text(m), line) {
			t.Errorf("%s:\n%s\nwant %s", keys, text(m), line)
		}
	}
	m, e := pressKeys(sampleModel(), "b10m<enter>spam<enter>y")
	if e.act == nil || e.act.change.For != proxy.Span(10*time.Minute) || e.act.change.Reason != "spam" {
		t.Errorf("%+v; want a ban for ten minutes:\n%s", e.act, text(m))
	}
}

// A key that is in one of both lists only has in the other at most what those have that are not listed.
func TestTop_TellsWhatACountMayBe(t *testing.T) {
	m := sampleModel()
	l := &m.data.Top.Limits[0]
	l.Requests.Floor, l.Refused.Floor = 40, 3
	l.Requests.Keys = l.Requests.Keys[:1]
	want := []string{"sms.phone|phone=bad|25|0-40|hbad", "sms.phone|phone=busy|0-3|60|hbusy"}
	if got := rowsOf(m, pageKeys); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q; want %q", got, want)
	}
	l.Requests.Keys, l.Refused.Keys = nil, nil
	if !strings.Contains(text(m), "no key stands out") {
		t.Errorf("where nobody stands out it shows\n%s", text(m))
	}
}

// While Redis is away, the rest is shown: what the node itself has seen.
func TestTop_WithoutRedis(t *testing.T) {
	m := sampleModel()
	d := sample()
	d.Away = "read nodes: redis circuit breaker open"
	d.Nodes, d.Leader, d.Statistic = admin.Nodes{}, admin.Leadership{}, admin.Statistics{}
	d.Top.Nodes = []admin.NodeAnswer{{Node: "n1", Said: "ok"}, {Node: "all other nodes", Said: "not asked: redis"}}
	m, _ = m.update(topFetched{data: d})
	for page, want := range map[topPage][]string{
		pageKeys:   {"sms.phone|phone=bad|25|25-30|hbad", "sms.phone|phone=busy|0|60|hbusy"},
		pageRoutes: {"sms|-|-|-|POST /sms|api|-", "ok|-|-|-|/ok|204|-"},
		pageNodes:  {"n1|ok||-|-|-|-|-", "all other nodes|not asked: redis||-|-|-|-|-"},
	} {
		if got := rowsOf(m, page); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q; want %q", page.title(), got, want)
		}
	}
	if want := "redis unreachable: only what this node has seen (read nodes: redis circuit breaker open)"; !strings.Contains(text(m), want) {
		t.Errorf("it shows\n%s\nwant %s", text(m), want)
	}
}

func TestTop_EndsStopsAndHelps(t *testing.T) {
	m := sampleModel()
	for _, keys := range []string{"q", "<ctrl-c>", "b<ctrl-c>"} {
		if _, e := pressKeys(m, keys); !e.end {
			t.Errorf("%s does not end it", keys)
		}
	}
	m, e := pressKeys(m, " ")
	if e.fetch || !strings.Contains(text(m), ", stopped") {
		t.Errorf("stopped, it does %+v and shows\n%s", e, text(m))
	}
	if _, e := pressKeys(m, "p"); !e.fetch {
		t.Error("going on, it does not look")
	}
	if m, _ = pressKeys(m, "?"); !strings.Contains(text(m), "another page") || !strings.Contains(text(m), "audit trail") {
		t.Errorf("help is\n%s", text(m))
	}
	m, _ = m.update(topFetched{err: errors.New("ask a running weir: refused")})
	if !strings.Contains(text(m), "ask a running weir: refused") || !strings.Contains(text(m), "phone=bad") {
		t.Errorf("without an answer it shows\n%s\nwant why, and what was told last", text(m))
	}
}
