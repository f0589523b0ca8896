package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// A leadership is what /api/v1/leader says.
type leadership struct {
	Self, Node string
	Since      time.Time
	Token      int64
	Tasks      []taskRun
}

// lease is how long the lead outlives a node that died.
const lease = 10 * time.Second

// A taskRun is the last run of a task.
type taskRun struct {
	Task, Node, Error string
	At, Next          time.Time
	Took              float64 `json:"took_ms"`
}

// leadership asks w who leads.
func (w *weir) leadership() (l leadership) {
	w.t.Helper()
	w.getAdmin("/api/v1/leader", &l)
	return l
}

// getAdmin fetches a page of the admin side into v.
func (w *weir) getAdmin(path string, v any) {
	w.t.Helper()
	status, body := w.get(w.Admin + path)
	if err := json.Unmarshal([]byte(body), v); err != nil || status != http.StatusOK {
		w.t.Fatalf("%s is answered %d %s: %v", path, status, body, err)
	}
}

// startLeading starts n nodes and waits until one of them leads. It returns that one and
// the others.
func startLeading(t *testing.T, n int, config string) (leader *weir, others []*weir) {
	t.Helper()
	var all []*weir
	for range n {
		all = append(all, start(t, config))
	}
	at := leads(t, all)
	return all[at], slices.Concat(all[:at], all[at+1:])
}

// leads waits until one of these nodes leads, and all say so.
func leads(t *testing.T, all []*weir) (at int) {
	t.Helper()
	await.Until(t, "all see one of them lead", func() bool {
		first := all[0].leadership()
		at = slices.IndexFunc(all, func(w *weir) bool { return w.leadership().Self == first.Node })
		return at >= 0 && !slices.ContainsFunc(all, func(w *weir) bool { return w.leadership().Node != first.Node })
	})
	return at
}

func TestLeader_KilledOneIsFollowed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader, others := startLeading(t, 3, redisYAML(server.Addr)+smsYAML("1/1h", ""))
	was := leader.leadership()
	if got := leader.metric("weir_leader") + others[0].metric("weir_leader") + others[1].metric("weir_leader"); got != 1 || leader.metric("weir_leader") != 1 {
		t.Errorf("%v nodes say that they lead, want the one", got)
	}
	leader.Kill()
	killed := time.Now()
	next := others[leads(t, others)]
	now := next.leadership()
	if took := now.Since.Sub(killed); took > 4*lease { // more than one, for a busy machine
		t.Errorf("another leads %v after the kill, want within the lease of %v", took, lease)
	}
	if now.Token <= was.Token {
		t.Errorf("the token is %d after %d, want a larger one", now.Token, was.Token)
	}
	next.WaitForLog("leadership acquired", func(l logtest.Line) bool { return l.Text("node") == now.Self })
	await.Until(t, "the tasks go on under the next leader", func() bool {
		return !slices.ContainsFunc(next.leadership().Tasks, func(r taskRun) bool { return r.Node != now.Self || r.Error != "" })
	})
	await.Until(t, "the killed node is lost", func() bool { return next.metric("weir_cluster_nodes_lost") == 1 })
	if code, stdout, stderr := next.admin(t.TempDir(), "nodes"); code != 0 || !strings.Contains(stdout, was.Self+"  lost ") || strings.Count(stdout, "  ok  ") != 2 {
		t.Errorf("weir nodes exits %d: %s%s; want two nodes, and the killed one", code, stdout, stderr)
	}
	if next.metric(`weir_leader_task_runs_total{result="ok",task="statistics"}`) == 0 {
		t.Error("no run of a task is counted")
	}
}

// A leader that ends in peace gives up the lead at once, long before its lease.
func TestLeader_EndsInPeace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader, others := startLeading(t, 2, redisYAML(server.Addr)+smsYAML("1/1h", ""))
	leader.Signal(syscall.SIGTERM)
	if code := leader.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if leader.log.Count("leadership lost") != 1 {
		t.Error("the leader does not say that it leadership lost")
	}
	if held := redisClient(t, server.Addr).HLen(t.Context(), "weir:{cluster}:lead").Val(); held != 0 && !others[0].leading() {
		t.Error("the lead is still held by the one that has ended")
	}
	await.Until(t, "the other leads", others[0].leading)
}

func (w *weir) leading() bool { l := w.leadership(); return l.Node == l.Self }

// A leader that is stopped for longer than its lease, and goes on, finds that
// another leads, and changes nothing any more.
func TestLeader_StoppedOneDoesNothingMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader, others := startLeading(t, 2, redisYAML(server.Addr)+smsYAML("1/1h", ""))
	leader.Signal(syscall.SIGSTOP)
	other := others[leads(t, others)]
	now := other.leadership()
	monitor := startMonitor(t, server.Addr)
	leader.Signal(syscall.SIGCONT)
	leader.WaitForLog("leadership lost", nil)
	await.Until(t, "the old leader says who leads", func() bool { l := leader.leadership(); return l.Node == now.Self && l.Token == now.Token })
	if leader.metric("weir_leader") != 0 || other.metric("weir_leader") != 1 {
		t.Error("both, or the wrong one, say that they lead")
	}
	old := leader.leadership().Self
	for _, r := range other.leadership().Tasks {
		if r.Node == old && r.At.After(time.UnixMilli(now.Token)) {
			t.Errorf("the old leader ran %s at %v", r.Task, r.At)
		}
	}
	if said := monitor.String(); strings.Contains(said, fmt.Sprintf(`\"node\":\"%s\"`, old)) {
		t.Errorf("the old leader noted a run after it went on:\n%s", said)
	}
}

// noted are the runs that Redis took from leaders, in turn.
func (m redisMonitor) noted(t *testing.T) (out []taskRun) {
	t.Helper()
	for _, found := range regexp.MustCompile(`lua\] "HSET" "weir:\{cluster\}:[a-z]+" "[a-z]+" ("\{.*\}")`).FindAllStringSubmatch(m.String(), -1) {
		text, err := strconv.Unquote(found[1])
		if err != nil {
			t.Fatalf("%s: %v", found[1], err)
		}
		var r taskRun
		if err := json.Unmarshal([]byte(text), &r); err == nil && r.Task != "" {
			out = append(out, r)
		}
	}
	return out
}

// Whatever happens to leaders, killed or stopped and continued: of one task no two
// runs overlap, and after the first run of one leader Redis takes none from an
// earlier one. Here the clock of all nodes is that of this machine.
func TestLeader_NoTaskRunsTwiceAtATime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", "")
	leader, others := startLeading(t, 4, config)
	monitor := startMonitor(t, server.Addr)
	worked := func(w *weir) {
		t.Helper()
		self := w.leadership().Self
		await.Until(t, "the leader's runs are noted", func() bool {
			return slices.ContainsFunc(monitor.noted(t), func(r taskRun) bool { return r.Node == self && r.Task == "statistics" })
		})
	}
	worked(leader)
	leader.Kill()
	at := leads(t, others)
	second := others[at]
	others = slices.Delete(slices.Clone(others), at, at+1)
	worked(second)
	second.Signal(syscall.SIGSTOP)
	worked(others[leads(t, others)])
	second.Signal(syscall.SIGCONT)
	second.WaitForLog("leadership lost", nil)
	worked(others[leads(t, others)])

	ended, terms, led := map[string]time.Time{}, map[string]bool{}, ""
	for _, r := range monitor.noted(t) {
		if r.At.Before(ended[r.Task]) {
			t.Errorf("%s of %s began at %v, before the run before it had ended at %v", r.Task, r.Node, r.At, ended[r.Task])
		}
		ended[r.Task] = r.At.Add(time.Duration(r.Took * float64(time.Millisecond)))
		if r.Node != led && terms[r.Node] {
			t.Errorf("%s ran %s after %s had taken the lead", r.Node, r.Task, led)
		}
		led, terms[r.Node] = r.Node, true
	}
	if len(terms) != 3 {
		t.Errorf("%d nodes have led, want 3", len(terms))
	}
}

// With the store in memory a process is a cluster of its own.
func TestLeader_AloneLeads(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	await.Until(t, "it leads", func() bool {
		l := w.leadership()
		return l.Node != "" && l.Node == l.Self
	})
	if w.metric("weir_leader") != 1 {
		t.Error("weir_leader is not 1")
	}
}

// Each node tells of all, and says which of them serves something else.
func TestNodes_AreToldByEach(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("1/1h", "")
	one, other := start(t, config), start(t, config)
	other.edit(redisYAML(server.Addr) + smsYAML("2/1h", ""))
	var said struct {
		Self  string
		Nodes []struct {
			ID, Address, Version, Hash string
			Generation                 int64
			Seen, Started              time.Time
			Drift                      bool
		}
	}
	for _, w := range []*weir{one, other} {
		await.Until(t, "one of two serves what was taken up before", func() bool {
			w.getAdmin("/api/v1/nodes", &said)
			return len(said.Nodes) == 2 && said.Nodes[0].Drift != said.Nodes[1].Drift
		})
		for _, n := range said.Nodes {
			if n.Drift != ("http://"+n.Address == one.Admin) || n.Version == "" || len(n.Hash) != 64 || n.Generation == 0 || n.Seen.IsZero() || n.Started.IsZero() {
				t.Errorf("%s says of the nodes %+v; want that %s is behind", w.Admin, said.Nodes, one.Admin)
			}
		}
	}
	alone := start(t, smsYAML("1/1h", ""))
	alone.getAdmin("/api/v1/nodes", &said)
	if len(said.Nodes) != 1 || said.Nodes[0].ID != said.Self || "http://"+said.Nodes[0].Address != alone.Admin || said.Nodes[0].Drift {
		t.Errorf("alone, the nodes are %+v", said.Nodes)
	}
}

// A counted is what /api/v1/statistics says, all minutes together.
type counted struct{ requests, allowed, refused int64 }

func (w *weir) counted() (c counted) {
	w.t.Helper()
	var said struct {
		Minutes []struct {
			Routes []struct {
				Route    string
				Requests int64
				Limits   []struct{ Allowed, Refused int64 }
			}
		}
	}
	w.getAdmin("/api/v1/statistics?minutes=1440", &said)
	for _, m := range said.Minutes {
		for _, r := range m.Routes {
			c.requests += r.Requests
			for _, l := range r.Limits {
				c.allowed, c.refused = c.allowed+l.Allowed, c.refused+l.Refused
			}
		}
	}
	return c
}

// What two nodes count is told by both, once each, and a change of the leader in
// the middle of a minute neither loses nor doubles any of it.
func TestStatistics_EqualWhatWasSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	leader, others := startLeading(t, 3, redisYAML(server.Addr)+smsYAML("5/1h", ", on_store_failure: deny"))
	others[0].statuses("a", 8)
	others[1].statuses("a", 4)
	leader.statuses("b", 3)
	all := counted{requests: 15, allowed: 8, refused: 7}
	await.Until(t, "all is told", func() bool { return leader.counted() == all })
	leader.Kill()
	others[0].statuses("b", 4)
	all = counted{requests: 19, allowed: 10, refused: 9}
	for _, w := range others {
		await.Until(t, "all is told under the next leader", func() bool { return w.counted() == all })
	}
	others[0].Signal(syscall.SIGTERM)
	others[0].Exit()
	if got := others[1].counted(); got != all {
		t.Errorf("in the end %+v is told, want %+v", got, all)
	}
}
