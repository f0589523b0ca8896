package cluster_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"

	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// startAnswering has n answer what it is asked, until the test ends. It returns when n hears
// questions, as do all before it.
func startAnswering(t *testing.T, rdb redis.UniversalClient, n *cluster.Node, see func(q cluster.Question) cluster.Seen) {
	t.Helper()
	const channel = "test:{cluster}:questions"
	before := rdb.PubSubNumSub(t.Context(), channel).Val()[channel]
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		n.ServeQuestions(ctx, func(_ context.Context, q cluster.Question) cluster.Seen { return see(q) })
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	await.Until(t, n.ID()+" hears questions", func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] > before })
}

// askUntil asks until so many nodes say something, as a machine that is busy may have others
// be late.
func askUntil(t *testing.T, from *cluster.Node, q cluster.Question, n int) (all []cluster.Reply) {
	t.Helper()
	await.Until(t, "nodes answer", func() bool {
		var err error
		if all, err = from.Ask(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, r := range all {
			if r.Said != "" {
				said++
			}
		}
		return said == n
	})
	return all
}

// decisionReplier answers with one decision of that id, and of no other.
func decisionReplier(id string) func(cluster.Question) cluster.Seen {
	return func(q cluster.Question) cluster.Seen {
		if q.Decisions == nil || q.Decisions.RequestID != id {
			return cluster.Seen{}
		}
		return cluster.Seen{Decisions: []view.Decided{{RequestID: id}}}
	}
}

func TestAsk_HearsAllOthersAndNamesThoseThatAreSilent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a, _ := join(t, rdb, "a")
	b, _ := join(t, dial(t, s.Addr), "b")
	c, _ := join(t, dial(t, s.Addr), "c")
	join(t, dial(t, s.Addr), "d") // answers nobody
	await.Until(t, "all are known", func() bool { return a.Live() == 4 })
	startAnswering(t, rdb, b, decisionReplier("one"))
	startAnswering(t, rdb, c, decisionReplier("other"))

	all := askUntil(t, a, cluster.Question{Decisions: &view.DecisionQuery{RequestID: "other"}}, 2)
	if len(all) != 3 {
		t.Fatalf("Ask = %+v; want three nodes", all)
	}
	if b := all[0]; b.Node != "b" || b.Said != "ok" || b.Seen.Decisions != nil {
		t.Errorf("b = %+v; want that it remembers nothing", b)
	}
	if c := all[1]; c.Node != "c" || c.Said != "ok" || len(c.Seen.Decisions) != 1 || c.Seen.Decisions[0].RequestID != "other" {
		t.Errorf("c = %+v; want one decision", c)
	}
	if d := all[2]; d.Node != "d" || d.Said != "" {
		t.Errorf("d = %+v; want that it was silent", d)
	}
}

func TestAsk_OfOneAloneAsksNobody(t *testing.T) {
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	await.Until(t, "a is known", func() bool {
		members, err := a.Nodes(t.Context())
		return err == nil && len(members) == 1
	})
	if all, err := a.Ask(t.Context(), cluster.Question{Top: &view.TopQuery{}}); err != nil || all != nil {
		t.Errorf("Ask = %+v, %v; want nothing", all, err)
	}
}

func TestAsk_SaysThatRedisIsAway(t *testing.T) {
	n := cluster.Join(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
	if all, err := n.Ask(t.Context(), cluster.Question{Top: &view.TopQuery{}}); err == nil {
		t.Errorf("Ask = %+v; want an error", all)
	}
}

// A reply that is too long is cut to one that is not, and says so; one that can be cut no
// more says that.
func TestAnswer_IsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, _ := join(t, dial(t, s.Addr), "a")
	var noise strings.Builder // which does not pack well
	for noise.Len() < 400<<10 {
		noise.WriteString(rand.Text())
	}
	see := func(_ context.Context, q cluster.Question) cluster.Seen {
		if q.Upstreams != nil {
			return cluster.Seen{Upstreams: []view.UpstreamStanding{{UpstreamState: view.UpstreamState{Name: strings.Repeat(noise.String(), 5)}}}}
		}
		all := make([]view.Decided, q.Decisions.N)
		for i := range all {
			all[i] = view.Decided{Path: noise.String()[i:] + noise.String()[:i]}
		}
		return cluster.Seen{Decisions: all}
	}
	r, length, err := a.Fit(t.Context(), cluster.Question{Decisions: &view.DecisionQuery{N: 6}}, see)
	if err != nil || length > 1<<20 || r.Node != "a" || r.Said != "ok" || !r.Seen.Cut || len(r.Seen.Decisions) == 0 || len(r.Seen.Decisions) > 3 {
		t.Errorf("a replies %d bytes, %q and %d decisions, %v; want some of them, and that they were cut", length, r.Said, len(r.Seen.Decisions), err)
	}
	r, _, err = a.Fit(t.Context(), cluster.Question{Decisions: &view.DecisionQuery{N: 1}}, see)
	if err != nil || r.Seen.Cut || len(r.Seen.Decisions) != 1 {
		t.Errorf("a replies %d decisions, %v; want one, and that it is whole", len(r.Seen.Decisions), err)
	}
	r, _, err = a.Fit(t.Context(), cluster.Question{Upstreams: &struct{}{}}, see)
	if err != nil || !strings.Contains(r.Said, "ask for less") {
		t.Errorf("a said %q, %v; want that it was too long", r.Said, err)
	}
	join(t, dial(t, s.Addr), "b")
	await.Until(t, "both are known", func() bool { return a.Live() == 2 })
	if _, err := a.Ask(t.Context(), cluster.Question{Decisions: &view.DecisionQuery{RequestID: strings.Repeat("a", 9<<10)}}); err == nil {
		t.Error("a question of 9 KB is asked")
	}
}

// Nothing stays in Redis of a reply that nobody came for.
func TestAnswer_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a, _ := join(t, rdb, "a")
	b, _ := join(t, dial(t, s.Addr), "b")
	await.Until(t, "both are known", func() bool { return a.Live() == 2 })
	startAnswering(t, rdb, b, decisionReplier("one"))
	if err := rdb.Publish(t.Context(), "test:{cluster}:questions", `{"id":"lost","node":"gone","question":{"decisions":{"N":1}}}`).Err(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "b replies", func() bool { return rdb.Exists(t.Context(), "test:{cluster}:replies:lost").Val() == 1 })
	if ttl := rdb.PTTL(t.Context(), "test:{cluster}:replies:lost").Val(); ttl <= 0 || ttl > 5*time.Second {
		t.Errorf("the reply is kept for %v", ttl)
	}
	for _, none := range []string{`{`, `{"node":"gone"}`, strings.Repeat("a", 9<<10)} {
		if err := rdb.Publish(t.Context(), "test:{cluster}:questions", none).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if all := askUntil(t, a, cluster.Question{Decisions: &view.DecisionQuery{RequestID: "one"}}, 1); len(all[0].Seen.Decisions) != 1 {
		t.Errorf("after what is no question, Ask = %+v", all)
	}
}

// What lies among the replies and is none does no harm.
func TestAsk_TakesNoReplyOfAStranger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a, _ := join(t, rdb, "a")
	join(t, dial(t, s.Addr), "b")
	await.Until(t, "both are known", func() bool { return a.Live() == 2 })
	questions := rdb.Subscribe(t.Context(), "test:{cluster}:questions")
	defer questions.Close()
	if _, err := questions.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var put sync.WaitGroup
	put.Go(func() {
		m, err := questions.ReceiveMessage(t.Context())
		if err != nil {
			return
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(m.Payload, `{"id":"`), `"`)
		rdb.RPush(t.Context(), "test:{cluster}:replies:"+id, "not packed", "")
	})
	all, err := a.Ask(t.Context(), cluster.Question{Upstreams: &struct{}{}})
	put.Wait()
	if err != nil || len(all) != 1 || all[0].Node != "b" || all[0].Said != "" {
		t.Errorf("Ask = %+v, %v; want that b was silent", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Ask(ctx, cluster.Question{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Ask for nobody = %v; want that it was cancelled", err)
	}
}
