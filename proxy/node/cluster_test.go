package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	rewrite(t, n.source.path, text)
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
	check(t, errors.Join(err, unread, unseen))
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
	text, err = json.Marshal(view.LimitMinute{Limit: "tokens", Settled: view.Settlement{Reserved: 9, Refunded: 2, Charged: 1, Requests: 2, Absent: 4, Error: 5, Encoded: 6, Cut: 7}})
	if want := `{"limit":"tokens","allowed":0,"refused":0,"shadow_refused":0,"unavailable":0,"settled":{"reserved":9,"refunded":2,"charged":1,"requests":2,"absent":4,"error":5,"encoded":6,"cut":7}}`; err != nil || string(text) != want {
		t.Errorf("what was settled = %s; want %s", text, want)
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

// Every node says limit by limit what makes the odd one out differ, without the values of sensitive keys; a node
// that does not say what it serves is named.
func TestDrift_IsShownLimitByLimit(t *testing.T) {
	redis := "store: redis\nredis: {addrs: ['" + redistest.Start(t).Addr + "'], timeout: 5s}\n"
	yaml := "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n" + redis + `privacy: {hash_secret: "01234567890123456789012345678901"}
keys: {phone: {from: "header:X-Phone", sensitive: true}}
lists: {friends: {key: phone, values: [%s], action: bypass}}
routes: [{name: sms, match: {path: /a}, respond: {body: ok}, lists: [friends], limits: [{name: phone, key: phone, rate: %s}]}]
`
	same := write(t, fmt.Sprintf(yaml, "one-number", "5/1m"))
	first, _, odd := mustStart(t, same), mustStart(t, same), mustStart(t, write(t, fmt.Sprintf(yaml, "another-number", "3/1m")))
	for _, n := range []*testNode{first, odd} {
		var groups []admin.NodeGroup
		await.Until(t, "three nodes are known, and answer", func() bool { // one that did not is asked again after unknownTTL
			groups = answered[admin.Nodes](t, n, "/api/v1/nodes").Configurations
			return len(groups) == 2 && len(groups[0].Nodes) == 2 && groups[1].Unknown == ""
		})
		lines := groups[1].Differences()
		if len(lines) != 2 || lines[0] != "sms.phone: 5/1m → 3/1m" || !strings.HasPrefix(lines[1], "list friends: ") || strings.Contains(lines[1], "number") || groups[0].Changes != nil {
			t.Errorf("%q; want the rate, and that the list differs", lines)
		}
	}
	mute := cluster.Join(first.store.client, cluster.Options{Prefix: first.store.prefix, ID: "mute", Source: "file", CallsBySlot: nobody})
	ended := make(chan bool)
	go func() { mute.Run(t.Context(), "127.0.0.1:1"); close(ended) }()
	t.Cleanup(func() { <-ended })
	await.Until(t, "the silent node is named, beside what is known of the other", func() bool {
		groups := answered[admin.Nodes](t, first, "/api/v1/nodes").Configurations
		return len(groups) == 3 && slices.ContainsFunc(groups, func(g admin.NodeGroup) bool { return g.Unknown == "mute did not say what it serves" }) &&
			slices.ContainsFunc(groups, func(g admin.NodeGroup) bool { return len(g.Changes) == 2 })
	})
}

// phones limits each phone number, and masks it.
const phones = `
%s
listen: {http: '127.0.0.1:0'}
admin: {http: '127.0.0.1:0'}
upstreams: {echo: echo}
keys: {phone: {from: 'header:X-Phone', sensitive: true}}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [{name: phone, key: phone, rate: 1/1h}]}
`

// startThree starts as many nodes that share a Redis, and waits until each hears the others.
func startThree(t *testing.T) []*testNode {
	t.Helper()
	path := write(t, fmt.Sprintf(phones, "store: redis\nredis: {timeout: 5s, addrs: ['"+redistest.Start(t).Addr+"']}"))
	nodes := []*testNode{mustStart(t, path), mustStart(t, path), mustStart(t, path)}
	for _, n := range nodes {
		await.Until(t, "all nodes answer", func() bool { return saidOK(answered[view.Top](t, n, "/api/v1/top").Nodes) == len(nodes) })
	}
	return nodes
}

func saidOK(nodes []view.NodeAnswer) (n int) {
	for _, one := range nodes {
		if one.Said == "ok" {
			n++
		}
	}
	return n
}

// sendFor sends a request for a phone, and returns the id that it was given.
func sendFor(t *testing.T, n *testNode, phone string, want int) (id string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+n.Address("http")+"/a", nil)
	check(t, err)
	r.Header.Set("X-Phone", phone)
	answer, err := http.DefaultClient.Do(r)
	check(t, err)
	answer.Body.Close()
	if answer.StatusCode != want {
		t.Fatalf("the answer is %d, want %d", answer.StatusCode, want)
	}
	return answer.Header.Get("X-Request-Id")
}

// Whichever node is asked tells what was decided on any, and no phone number travels.
func TestObserved_EachNodeTellsOfAll(t *testing.T) {
	nodes := startThree(t)
	const phone = "+8613800138000"
	ids := []string{sendFor(t, nodes[0], phone, 200), sendFor(t, nodes[1], phone, 429), sendFor(t, nodes[2], phone, 429)}
	for _, asked := range nodes {
		for i, n := range nodes {
			var found view.Decisions
			await.Until(t, fmt.Sprintf("request %d is found", i), func() bool {
				found = answered[view.Decisions](t, asked, "/api/v1/decisions?request_id="+ids[i])
				return len(found.Decisions) == 1 && saidOK(found.Nodes) == 3
			})
			if d := found.Decisions[0]; d.Node != n.store.id || len(d.Limits) != 1 || d.Limits[0].Masked == "" || strings.Contains(d.Limits[0].Masked, phone) {
				t.Errorf("request %d is %+v; want it of node %s, masked", i, d, n.store.id)
			}
		}
		var all view.Decisions
		await.Until(t, "all nodes tell of decisions", func() bool {
			all = answered[view.Decisions](t, asked, "/api/v1/decisions?n=2")
			return saidOK(all.Nodes) == 3
		})
		if d := all.Decisions; len(d) != 2 || d[0].RequestID != ids[2] || d[1].RequestID != ids[1] {
			t.Errorf("the last two are %+v", d)
		}
		var top view.Top
		await.Until(t, "all nodes tell of keys", func() bool {
			top = answered[view.Top](t, asked, "/api/v1/top")
			return saidOK(top.Nodes) == 3
		})
		if l := top.Limits; len(l) != 1 || l[0].Requests.Total != 3 || l[0].Refused.Total != 2 || len(l[0].Requests.Keys) != 1 || l[0].Requests.Keys[0].Count != 3 {
			t.Errorf("top = %+v; want one key with three requests", l)
		}
	}
	if got := answered[view.Decisions](t, nodes[0], "/api/v1/decisions?key="+phone[1:]); len(got.Decisions) > 0 || len(got.Nodes) > 0 {
		t.Errorf("asked for a phone number, the nodes are %+v", got)
	}
	for _, n := range nodes {
		if strings.Contains(n.log.String(), phone) {
			t.Error("a log has the phone number")
		}
	}
}

// A node that lives and does not answer is named, and the others are told of.
func TestObserved_NamesANodeThatIsSilent(t *testing.T) {
	n := mustStart(t, write(t, fmt.Sprintf(phones, "store: redis\nredis: {timeout: 5s, addrs: ['"+redistest.Start(t).Addr+"']}")))
	id := sendFor(t, n, "1", 200)
	mute := cluster.Join(n.store.client, cluster.Options{Prefix: n.store.prefix, ID: "mute", Version: "v0.0.1", Source: "file", CallsBySlot: nobody})
	ended := make(chan bool)
	go func() { mute.Run(t.Context(), "127.0.0.1:1"); close(ended) }()
	t.Cleanup(func() { <-ended })
	await.Until(t, "the other node is known", func() bool { return len(answered[admin.Nodes](t, n, "/api/v1/nodes").Nodes) == 2 })
	found := answered[view.Decisions](t, n, "/api/v1/decisions?request_id="+id)
	want := []view.NodeAnswer{{Node: n.store.id, Said: "ok"}, {Node: "mute"}}
	if len(found.Decisions) != 1 || !slices.Equal(found.Nodes, want) {
		t.Errorf("decisions = %+v; want one, and that mute was silent", found)
	}
}

// Without Redis a node tells what it has seen itself, and that the others were not asked.
func TestObserved_WithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	n := mustStart(t, write(t, fmt.Sprintf(phones, "store: redis\nredis: {timeout: 100ms, breaker: {rest: 100ms}, addrs: ['"+server.Addr+"']}")))
	server.Kill()
	n.waitForLog("redis unreachable; limits go by on_store_failure")
	id := sendFor(t, n, "1", 200)
	found := answered[view.Decisions](t, n, "/api/v1/decisions?request_id="+id)
	if len(found.Decisions) != 1 || len(found.Nodes) != 2 || found.Nodes[0].Said != "ok" || !strings.HasPrefix(found.Nodes[1].Said, "not asked: ") {
		t.Errorf("decisions = %+v; want what this node knows, and that others were not asked", found)
	}
}

func TestObserved_OfOneThatSharesNothing(t *testing.T) {
	n := mustStart(t, write(t, fmt.Sprintf(phones, "")))
	sendFor(t, n, "1", 200)
	sendFor(t, n, "1", 429)
	if found := answered[view.Decisions](t, n, "/api/v1/decisions"); len(found.Decisions) != 2 || len(found.Nodes) != 1 {
		t.Errorf("decisions = %+v; want two of one node", found)
	}
	for query, says := range map[string]string{"route=nowhere": "there is no route", "limit=none": "there is no limit"} {
		for _, path := range []string{"decisions", "top"} {
			if said := fetch(t, "http://"+n.Address("admin")+"/api/v1/"+path+"?"+query); !strings.Contains(said, says) {
				t.Errorf("%s?%s: %s", path, query, said)
			}
		}
	}
	if top := answered[view.Top](t, n, "/api/v1/top"); len(top.Limits) != 1 || top.Limits[0].Refused.Total != 1 || len(top.Nodes) != 1 {
		t.Errorf("top = %+v", top)
	}
	got := answered[view.Upstreams](t, n, "/api/v1/upstreams")
	if len(got.Upstreams) != 1 || len(got.Nodes) != 1 {
		t.Fatalf("upstreams = %+v; want one, of one node", got)
	}
	if u := got.Upstreams[0]; !u.Echo || !slices.Equal(u.Routes, []string{"a"}) || len(u.Targets) != 1 || u.Targets[0].State != "healthy" || u.Targets[0].Requests != 1 || u.Targets[0].Errors != 0 {
		t.Errorf("upstream = %+v; want the echo, which has answered once", u)
	}
}

// What one node could not tell whole hides the rest of all from before that.
func TestObserved_NothingIsToldFromBeforeACut(t *testing.T) {
	at := func(s int64) view.Decided { return view.Decided{At: time.Unix(s, 0)} }
	reply := func(node string, decisions ...view.Decided) cluster.Reply {
		return cluster.Reply{NodeAnswer: view.NodeAnswer{Node: node, Said: "ok"}, Seen: cluster.Seen{Decisions: decisions}}
	}
	cut := reply("b", at(8), at(5))
	cut.Seen.Cut = true
	var got []int64
	for _, d := range mergeDecisions(10, []cluster.Reply{reply("a", at(9), at(6), at(4), at(3)), cut, reply("c")}) {
		got = append(got, d.At.Unix())
	}
	if want := []int64{9, 8, 6, 5}; !slices.Equal(got, want) {
		t.Errorf("told of %v, want %v", got, want)
	}
	if n := len(mergeDecisions(3, []cluster.Reply{reply("a", at(9), at(6), at(4), at(3))})); n != 3 {
		t.Errorf("%d are told of, want 3", n)
	}
}

// A target is as bad as the worst node says, and has what all nodes counted.
func TestUpstreams_OfSeveralNodes(t *testing.T) {
	u := func(name string, targets ...view.TargetStanding) cluster.Seen {
		return cluster.Seen{Upstreams: []view.UpstreamStanding{{UpstreamState: view.UpstreamState{Name: name, Waiting: 1, Retried: 2}, Targets: targets}}}
	}
	target := func(state string, requests, errors int64) view.TargetStanding {
		return view.TargetStanding{Target: "http://a", Weight: 1, TargetState: view.TargetState{State: state, InFlight: 3, Requests: requests, Errors: errors}, Results: map[string]int64{"ok": requests - errors, "connect": errors}}
	}
	got := mergeUpstreams([]cluster.Reply{
		{NodeAnswer: view.NodeAnswer{Node: "1", Said: "ok"}, Seen: u("api", target("healthy", 5, 0))},
		{NodeAnswer: view.NodeAnswer{Node: "2", Said: "ok"}, Seen: u("api", target("ejected", 4, 4), view.TargetStanding{Target: "http://gone"})},
		{NodeAnswer: view.NodeAnswer{Node: "3"}},
		{NodeAnswer: view.NodeAnswer{Node: "4", Said: "ok"}, Seen: u("other", target("unhealthy", 1, 1))},
	})
	if len(got) != 1 || len(got[0].Targets) != 1 || got[0].Waiting != 2 || got[0].Retried != 4 {
		t.Fatalf("upstreams = %+v; want the one that the first node has", got)
	}
	a := got[0].Targets[0]
	if a.State != "ejected" || a.Requests != 9 || a.Errors != 4 || a.InFlight != 6 || a.Results["ok"] != 5 || a.Results["connect"] != 4 || len(a.Nodes) != 2 || a.Nodes[1].Node != "2" {
		t.Errorf("target = %+v", a)
	}
	if severity("of a later version") <= severity("unhealthy") {
		t.Error("a state that nobody knows counts for nothing")
	}
}

// nobody has a Redis Cluster.
func nobody() []string { return nil }
