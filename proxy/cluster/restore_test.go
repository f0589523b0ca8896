package cluster_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// pushes pushes all of texts, one after the other.
func pushes(t *testing.T, n *cluster.Node, texts ...string) (generation int64) {
	t.Helper()
	for _, text := range texts {
		done, err := n.Push(t.Context(), of(text))
		if err != nil {
			t.Fatal(err)
		}
		generation = done.Generation
	}
	return generation
}

// knowing waits until Redis has that many entries of the history, under that
// generation.
func knowing(t *testing.T, n *cluster.Node, generation int64, entries int) {
	t.Helper()
	await.Until(t, "redis knows what the nodes know", func() bool {
		history, err := n.History(t.Context())
		number, also := n.Number(t.Context())
		return err == nil && also == nil && len(history) == entries && number == generation && (entries == 0 || history[0].Generation == generation)
	})
}

// A Redis that comes back empty is told what the nodes know, and the next generation
// is a higher one.
func TestRestore_EmptyRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b")
	pushes(t, all[0].Node, "one", "two", "three")
	await.Until(t, "b serves it", func() bool { return all[1].is("three") })
	if err := dial(t, s.Addr).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	knowing(t, all[0].Node, 3, 3)
	limits, err := all[0].Limits(t.Context())
	if err != nil || len(limits) == 0 {
		t.Errorf("limits %v, %v; want the definitions again", limits, err)
	}
	late, _ := hosted(t, dial(t, s.Addr), "c")
	await.Until(t, "a node that comes later serves it", func() bool { return late.is("three") })
	if got := pushes(t, all[1].Node, "four"); got != 4 {
		t.Errorf("generation %d; want 4", got)
	}
	if texts := all[0].serves; len(texts) != 4 || texts[3] != 4 {
		t.Errorf("a has served %v; want each once, and none again", texts)
	}
}

// The same at the very moment of a push, before any sign of life.
func TestRestore_BeforeAPush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, _ := hosted(t, dial(t, s.Addr), "a")
	await.Until(t, "a is known", func() bool { m, err := a.Nodes(t.Context()); return err == nil && len(m) == 1 })
	pushes(t, a.Node, "one", "two")
	dial(t, s.Addr).FlushAll(t.Context())
	if done, err := a.Restore(t.Context()); err != nil || !done {
		knowing(t, a.Node, 2, 2) // a sign of life came first
	}
	if done, err := a.Restore(t.Context()); err != nil || done {
		t.Errorf("Restore once more = %v, %v; want that nothing is lost", done, err)
	}
	dial(t, s.Addr).FlushAll(t.Context())
	if got := pushes(t, a.Node, "three"); got != 3 {
		t.Errorf("generation %d; want 3", got)
	}
}

// A replica that became master without the last pushes is brought up to date, and
// nobody serves an older one again.
func TestRestore_OlderReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b")
	pushes(t, all[0].Node, "one", "two")
	rdb := dial(t, s.Addr)
	config, history := rdb.Dump(t.Context(), "test:{cluster}:config").Val(), rdb.Dump(t.Context(), "test:{cluster}:history").Val()
	pushes(t, all[0].Node, "three")
	await.Until(t, "b serves it", func() bool { return all[1].is("three") })
	rdb.RestoreReplace(t.Context(), "test:{cluster}:config", 0, config)
	rdb.RestoreReplace(t.Context(), "test:{cluster}:history", 0, history)
	knowing(t, all[0].Node, 3, 3)
	for _, h := range all {
		h.mu.Lock()
		if last := h.serves[len(h.serves)-1]; last != 3 || !strings.Contains(h.text, "three") {
			t.Errorf("node %s serves %v; want nothing after 3", h.ID(), h.serves)
		}
		h.mu.Unlock()
	}
}

// What was pushed to nodes that knew nothing of what was before is the later one, and
// so gets a higher generation.
func TestRestore_PushedMeanwhileIsLater(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	a := &host{Node: cluster.Join(rdb, cluster.Options{Prefix: "test", ID: "a", Source: "redis"})}
	before := of("before")
	a.Adopt(cluster.Entry{Entry: view.Entry{Generation: 5, Hash: before.Bundle.Hash(), Author: "ann"}, Packed: bundle.Seal{}.Pack(before.Bundle), Bundle: before.Bundle}, before.Config)
	fresh, _ := hosted(t, dial(t, s.Addr), "fresh")
	await.Until(t, "fresh is known", func() bool { m, err := fresh.Nodes(t.Context()); return err == nil && len(m) == 1 })
	if got := pushes(t, fresh.Node, "later"); got != 1 {
		t.Fatalf("generation %d; want 1", got)
	}
	if done, err := a.Restore(t.Context()); err != nil || !done {
		t.Fatalf("Restore = %v, %v", done, err)
	}
	history, err := a.History(t.Context())
	if err != nil || len(history) != 2 || history[0].Generation != 6 || history[0].Bundle.Files["a"] != "later" || history[1].Generation != 5 {
		t.Errorf("history %+v, %v; want later as 6, before as 5", history, err)
	}
	await.Until(t, "it is served as 6", func() bool {
		fresh.mu.Lock()
		defer fresh.mu.Unlock()
		return fresh.serves[len(fresh.serves)-1] == 6 && fresh.text == "later"
	})
}

// Nodes that read files of their own give back the number too.
func TestRestore_NodesWithFiles(t *testing.T) {
	s := redistest.Start(t)
	a, b := cluster.Join(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "a"}), cluster.Join(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "b"})
	mustAgree(t, a, "one", 1)
	mustAgree(t, a, "two", 2)
	mustAgree(t, a, "three", 3)
	mustAgree(t, b, "three", 3)
	dial(t, s.Addr).FlushAll(context.Background())
	mustAgree(t, b, "four", 4)
	if done, err := a.Restore(t.Context()); err != nil || done {
		t.Errorf("Restore = %v, %v; want that nothing of a's is lost", done, err)
	}
	dial(t, s.Addr).FlushAll(context.Background())
	fresh := cluster.Join(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "fresh"})
	mustAgree(t, fresh, "five", 1)
	if done, err := b.Restore(t.Context()); err != nil || !done {
		t.Errorf("Restore = %v, %v; want the number raised", done, err)
	}
	mustAgree(t, fresh, "six", 6)
}
