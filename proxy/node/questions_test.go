package node

import (
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
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Phone", phone)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
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
	mute := cluster.Join(n.store.client, cluster.Options{Prefix: n.store.prefix, ID: "mute", Version: "v0.0.1", Source: "file"})
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
