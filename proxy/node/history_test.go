package node

import (
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/redistest"
)

// A rollback leads away from what was rolled back, however often it is repeated.
func TestRollbackTo(t *testing.T) {
	type push struct {
		contents string
		from     int64 // for a rollback
	}
	for name, c := range map[string]struct {
		pushes []push // the first is generation 1
		want   int64
	}{
		"nothing":                     {nil, 0},
		"one push":                    {[]push{{"a", 0}}, 0},
		"the one before":              {[]push{{"a", 0}, {"bad", 0}}, 1},
		"once more: not the bad one":  {[]push{{"z", 0}, {"a", 0}, {"bad", 0}, {"a", 2}}, 1},
		"once more: nothing is left":  {[]push{{"a", 0}, {"bad", 0}, {"a", 1}}, 0},
		"thrice":                      {[]push{{"y", 0}, {"z", 0}, {"a", 0}, {"bad", 0}, {"a", 3}, {"z", 2}}, 1},
		"the same contents once more": {[]push{{"z", 0}, {"a", 0}, {"a", 0}}, 1},
		"bad was pushed twice":        {[]push{{"z", 0}, {"bad", 0}, {"a", 0}, {"bad", 0}, {"a", 3}}, 1},
		"after a rollback a new push": {[]push{{"a", 0}, {"bad", 0}, {"a", 1}, {"new", 0}}, 3},
		"its origin is forgotten":     {[]push{{"z", 0}, {"bad", 0}, {"a", -1}}, 1},
	} {
		var entries []cluster.Entry
		for i, p := range c.pushes {
			e := cluster.Entry{Entry: view.Entry{Generation: int64(i + 1), From: p.from}, Bundle: bundle.Bundle{Main: "m", Files: map[string]string{"m": p.contents}}}
			entries = append([]cluster.Entry{e}, entries...)
		}
		got := int64(0)
		if i := rollbackTo(entries); i >= 0 {
			got = entries[i].Generation
		}
		if got != c.want {
			t.Errorf("%s: generation %d, want %d", name, got, c.want)
		}
	}
}

func TestCompareFiles_RootWithRoot(t *testing.T) {
	was := bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "one\ntwo\n", "list.txt": "a\n"}}
	is := bundle.Bundle{Main: "strict.yaml", Files: map[string]string{"strict.yaml": "one\nthree\n", "list.txt": "a\n"}}
	got := compareFiles(was, is)
	if !strings.Contains(got, "\n one\n-two\n+three\n") || strings.Contains(got, "list.txt") {
		t.Errorf("%s\nwant one line changed", got)
	}
}

// A push that changes nothing is none, and a dry run of a rollback is no rollback: neither is in the history or the
// audit trail. The sender is the author if nobody else is named.
func TestPush_OfNothingIsNone(t *testing.T) {
	server := redistest.Start(t)
	n, client := startFollower(t, server.Addr)
	first, err := client.Push(t.Context(), admin.Push{Bundle: limitBundle(t, "5/1h"), Sender: "ann@host"})
	if err != nil {
		t.Fatal(err)
	}
	n.waitForLog("serving pushed config")
	renamed := limitBundle(t, "5/1h")
	text := renamed.Files[renamed.Main]
	again, err := client.Push(t.Context(), admin.Push{Bundle: bundle.Bundle{Main: "other.yaml", Files: map[string]string{"other.yaml": text}}, Author: "bob"})
	if err != nil || again.Changed || again.Generation != first.Generation || len(again.Changes) != 0 {
		t.Errorf("the same under another name = %+v, %v; want no change", again, err)
	}
	if _, err := client.Push(t.Context(), admin.Push{Bundle: limitBundle(t, "3/1h"), Author: "bob"}); err != nil {
		t.Fatal(err)
	}
	would, err := client.Rollback(t.Context(), admin.Rollback{DryRun: true})
	if err != nil || would.From != first.Generation || len(would.Changes) != 2 || would.Changes[0].String() != "a.user: 3/1h → 5/1h" {
		t.Errorf("dry run = %+v, %v; want the rate of ann's push", would, err)
	}
	h, err := client.History(t.Context())
	if err != nil || len(h.History) != 2 || h.History[1].Author != "ann@host" {
		t.Errorf("history = %+v, %v; want two pushes", h, err)
	}
	if trail, err := client.AuditPage(t.Context(), view.AuditQuery{}); err != nil || len(trail.Entries) != 2 {
		t.Errorf("audit = %+v, %v; want two pushes", trail, err)
	}
	if d, err := client.Diff(t.Context(), h.History[0].Generation); err != nil || len(d.Changes) != 2 || d.Changes[0].String() != "a.user: 5/1h → 3/1h" {
		t.Errorf("diff = %+v, %v; want the rates", d, err)
	}
}
