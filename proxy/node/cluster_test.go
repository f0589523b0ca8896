package node

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// answered reads an answer of the API into into.
func answered[T any](t *testing.T, n *testNode, path string) (into T) {
	t.Helper()
	if err := json.Unmarshal([]byte(fetch(t, "http://"+n.Address("admin")+path)), &into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return into
}

// A node that shares nothing is the only one, and leads.
func TestCluster_OfOneThatSharesNothing(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	nodes := answered[admin.Nodes](t, n, "/api/v1/nodes")
	if len(nodes.Nodes) != 1 || nodes.Nodes[0].ID != nodes.Self || nodes.Nodes[0].Drift || nodes.Nodes[0].Version != "v0.0.1" || nodes.Nodes[0].Address != n.Address("admin") {
		t.Errorf("nodes = %+v; want this one", nodes)
	}
	var lead view.Leadership
	await.Until(t, "somebody leads", func() bool {
		lead = answered[view.Leadership](t, n, "/api/v1/leader")
		return lead.Node != "" && len(lead.Tasks) > 0
	})
	if lead.Node != nodes.Self || lead.Self != nodes.Self {
		t.Errorf("leader = %+v; want this node", lead)
	}
	if !strings.Contains(fetch(t, "http://"+n.Address("admin")+"/metrics"), "\nweir_leader 1\n") {
		t.Error("the figures do not say that it leads")
	}
	if got := fetch(t, "http://"+n.Address("admin")+"/api/v1/statistics"); !strings.HasPrefix(got, `{"minutes":[],"last":{"at":"`) || !strings.HasSuffix(got, `","routes":[]}}`+"\n") {
		t.Errorf("statistics = %s; want none yet", got)
	}
	for _, id := range []string{"zzz", "1-x"} { // whoever asks is wrong, and not the store away
		if p := answered[admin.Problem](t, n, "/api/v1/audit?before="+id); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "before="+id+" is not the id of an entry") {
			t.Errorf("audit before %s = %+v; want 400", id, p)
		}
	}
	n.end()
	for _, message := range []string{"leadership acquired", "leadership lost"} {
		if n.findLog(message) != nil {
			t.Errorf("%q is logged, where there is nobody else", message)
		}
	}
}

// Of two one leads, and says so; when it ends, the other does.
func TestCluster_LeadPassesOn(t *testing.T) {
	path := writeConfig(t, "store: redis\nredis: {addrs: ['"+redistest.Start(t).Addr+"'], timeout: 5s}\n")
	one := mustStart(t, path)
	one.waitForLog("leadership acquired")
	two := mustStart(t, path)
	await.Until(t, "the nodes know each other", func() bool { return len(answered[admin.Nodes](t, two, "/api/v1/nodes").Nodes) == 2 })
	if lead := answered[view.Leadership](t, two, "/api/v1/leader"); lead.Node != one.store.id || lead.Self != two.store.id {
		t.Errorf("leader = %+v; want the first node", lead)
	}
	one.end()
	if got := one.findLog("leadership lost"); got == nil || got["level"] != "info" {
		t.Errorf("the log says %v; want that it has given up the lead", got)
	}
	two.waitForLog("leadership acquired")
	if nodes := answered[admin.Nodes](t, two, "/api/v1/nodes"); len(nodes.Nodes) != 1 {
		t.Errorf("nodes = %+v; want that the first has left", nodes)
	}
}

// A node that reloads while Redis is away is numbered when it is back.
func TestCluster_RejoinsWhenRedisIsBack(t *testing.T) {
	server := redistest.Start(t)
	n := mustStart(t, writeConfig(t, "store: redis\nredis: {addrs: ['"+server.Addr+"'], timeout: 100ms, breaker: {rest: 100ms}}\n"))
	if number, _ := n.proxy.Serving(); number != 1 {
		t.Fatalf("generation %d; want 1", number)
	}
	server.Kill()
	n.waitForLog("redis unreachable; limits go by on_store_failure")
	text := "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\nroutes: [{match: {path: /b}, upstream: echo}]\nupstreams: {echo: echo}\n" +
		"store: redis\nredis: {addrs: ['" + server.Addr + "'], timeout: 100ms, breaker: {rest: 100ms}}\n"
	if err := rewrite(n.source.path, text); err != nil {
		t.Fatal(err)
	}
	n.waitForLog("reloaded without the other nodes")
	server.Restart()
	n.waitForLog("redis reachable")
	await.Until(t, "the node tells the others what it serves", func() bool {
		nodes := answered[admin.Nodes](t, n, "/api/v1/nodes").Nodes
		_, now := n.proxy.Serving()
		return len(nodes) == 1 && nodes[0].Hash == now.Hash
	})
}

func TestLeader_LogsWhenTasksBeginToFail(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	for _, run := range []view.TaskRun{{Task: "t"}, {Task: "t", Error: "a"}, {Task: "t", Error: "b"}, {Task: "t"}, {Task: "t"}} {
		n.leader.ran(run)
	}
	n.waitForLog("leader task recovered")
	if got := n.findLog("leader task failed"); got == nil || got["error"] != "a" || strings.Count(n.log.String(), "leader task") != 2 {
		t.Errorf("log:\n%s\nwant one line when it begins to fail and one when it fails no more", n.log)
	}
	metrics := fetch(t, "http://"+n.Address("admin")+"/metrics")
	for _, want := range []string{`weir_leader_task_runs_total{result="failed",task="t"} 2`, `weir_leader_task_runs_total{result="ok",task="t"} 3`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestLeader_LogsWhatBecomesOfAlerts(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	n.leader.alerted(cluster.Alert{ID: "1", Kind: cluster.KindRefused, Route: "sms", Limit: "phone"}, cluster.Failed, errors.New("refused"))
	if n.findLog("alert") != nil {
		t.Error("an alert that is sent again is logged")
	}
	n.leader.alerted(cluster.Alert{ID: "1", Kind: cluster.KindRefused, Route: "sms", Limit: "phone"}, cluster.Dropped, errors.New("gone"))
	if got := n.waitForLog("alert"); got["level"] != "warn" || got["limit"] != "phone" || got["result"] != cluster.Dropped {
		t.Errorf("the log says %v", got)
	}
}

func TestAnswers_NothingIsAnEmptyList(t *testing.T) {
	leader, err := cluster.NewLeader(cluster.LeaderOptions{}).Current(t.Context())
	s := cluster.NewStatistics(nil, "", "", nil)
	minutes, unread := s.Minutes(t.Context(), 2)
	last, unseen := s.Last(t.Context())
	if err := errors.Join(err, unread, unseen); err != nil {
		t.Fatal(err)
	}
	last.At = time.Time{}
	for name, got := range map[string]any{
		`{"self":"","node":"","tasks":[]}`:                                leader,
		`{"nodes":[],"self":"a","lost":[],"configurations":[]}`:           nodesOf("a", nil, nil),
		`{"minutes":[],"last":{"at":"0001-01-01T00:00:00Z","routes":[]}}`: view.Statistics{Minutes: minutes, Last: last},
		`{"history":[]}`: history(nil),
	} {
		if text, err := json.Marshal(got); err != nil || string(text) != name {
			t.Errorf("%s, %v; want %s", text, err, name)
		}
	}
}

func TestAnswers_Whole(t *testing.T) {
	at := time.Unix(60, 0).UTC()
	got := view.Statistics{Last: view.Minute{Routes: []view.RouteMinute{}}, Minutes: []view.Minute{{At: at, Routes: []view.RouteMinute{{Route: "a", Requests: 15, Allowed: 1, Refused: 2, ShadowRefused: 3, Rejected: 4, Unavailable: 5, Limits: []view.LimitMinute{{Limit: "user", Allowed: 1, Refused: 2, ShadowRefused: 3, Unavailable: 4}}}}}}}
	text, err := json.Marshal(got)
	if want := `{"minutes":[{"at":"1970-01-01T00:01:00Z","routes":[{"route":"a","requests":15,"allowed":1,"refused":2,"shadow_refused":3,"rejected":4,"unavailable":5,"limits":[{"limit":"user","allowed":1,"refused":2,"shadow_refused":3,"unavailable":4}]}]}],"last":{"at":"0001-01-01T00:00:00Z","routes":[]}}`; err != nil || string(text) != want {
		t.Errorf("statistics = %s; want %s", text, want)
	}
	text, err = json.Marshal(history([]cluster.Entry{{Entry: view.Entry{Generation: 3, Hash: "h", Author: "ann", Node: "n", At: at, From: 1}}}))
	if want := `{"history":[{"generation":3,"hash":"h","author":"ann","node":"n","at":"1970-01-01T00:01:00Z","from":1}]}`; err != nil || string(text) != want {
		t.Errorf("history = %s; want %s", text, want)
	}
}

// The odd one out drifts, and not the majority, whatever the number of its generation; of as many the pushed one is right.
func TestNodesOf_NameTheOddOneOut(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []view.Member
		odd   string
	}{
		"the rogue is newer": {[]view.Member{{ID: "a", Hash: "x", Generation: 5, Source: "file"}, {ID: "b", Hash: "y", Generation: 4}, {ID: "c", Hash: "y", Generation: 4}}, "a"},
		"one is behind":      {[]view.Member{{ID: "a", Hash: "x", Generation: 4}, {ID: "b", Hash: "y", Generation: 5}, {ID: "c", Hash: "y", Generation: 5}}, "a"},
		"one each, pushed":   {[]view.Member{{ID: "a", Hash: "x", Generation: 5, Source: "file"}, {ID: "b", Hash: "y", Generation: 4, Source: "redis"}}, "a"},
		"one each, newer":    {[]view.Member{{ID: "a", Hash: "x", Generation: 4}, {ID: "b", Hash: "y", Generation: 5}}, "a"},
		"nobody":             {[]view.Member{{ID: "a", Hash: "x", Generation: 4}, {ID: "b", Hash: "x", Generation: 4}}, ""},
	} {
		all := nodesOf("a", c.nodes, []view.Member{{ID: "gone"}})
		odd := ""
		for _, m := range all.Nodes {
			if m.Drift {
				odd += m.ID
			}
		}
		if odd != c.odd || len(all.Lost) != 1 || all.Lost[0].ID != "gone" {
			t.Errorf("%s: %+v; want %q to drift", name, all, c.odd)
		}
		if g := all.Configurations; odd != "" && (len(g) != 2 || g[1].Nodes[0] != odd || g[1].Source != c.nodes[0].Source) {
			t.Errorf("%s: %+v; want the odd one last", name, g)
		}
	}
}

func TestReloadStatus_RefusalStandsUntilAReloadGoesWell(t *testing.T) {
	s := newReloadStatus(newRegistry(Build{}))
	if got := s.status(1); got != "ok" {
		t.Errorf("at first %q", got)
	}
	s.record(errors.New("a"))
	first := s.status(3)
	s.record(context.Canceled)
	if got := s.status(3); got != first || !strings.Contains(got, "generation 3 is served on") {
		t.Errorf("after two refusals %q, then %q; want since when, of the first", first, got)
	}
	s.record(nil)
	if got := s.status(4); got != "ok" {
		t.Errorf("after a reload %q", got)
	}
}
