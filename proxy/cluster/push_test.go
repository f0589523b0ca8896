package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A host is what serves on a node: it notes what it was told to serve.
type host struct {
	*cluster.Node

	mu     sync.Mutex // guards what follows
	serves []int64
	text   string
	open   int   // ready and neither installed nor discarded
	refuse error // what it says to every bundle
}

// A testCluster is a bundle that is ready on a host.
type testCluster struct {
	h    *host
	text string
}

func (t testCluster) Config() *config.Config { return configOf(t.text) }

func (t testCluster) Install(number int64) {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.h.open--
	t.h.serves, t.h.text = append(t.h.serves, number), t.text
}

func (t testCluster) Discard() {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.h.open--
}

func (h *host) take(_ context.Context, b bundle.Bundle) (cluster.Prepared, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return nil, h.refuse
	}
	h.open++
	return testCluster{h, b.Files[b.Main]}, nil
}

func (h *host) is(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text == text
}

// hosts runs nodes that follow, until the test ends.
func hosts(t *testing.T, addr string, ids ...string) []*host {
	t.Helper()
	var all []*host
	for _, id := range ids {
		h, _ := hosted(t, dial(t, addr), id)
		all = append(all, h)
	}
	await.Until(t, "all are known", func() bool {
		members, err := all[0].Nodes(t.Context())
		return err == nil && len(members) >= len(ids)
	})
	return all
}

// hosted runs one, until the test ends or the function that it returns is called.
func hosted(t *testing.T, rdb redis.UniversalClient, id string) (*host, func()) {
	t.Helper()
	h := &host{Node: joinAs(rdb, cluster.Options{Prefix: "test", ID: id, Source: "redis"})}
	t.Cleanup(func() {
		if h.open != 0 {
			t.Errorf("node %s holds %d configurations that are ready", id, h.open)
		}
	})
	return h, running(t, func(ctx context.Context) { h.Run(ctx, "127.0.0.1:1") }, func(ctx context.Context) {
		h.Follow(ctx, &cluster.Follower{Prepare: h.take, Serve: func(cluster.Entry) {}, Applied: func(cluster.Entry, error) {}})
	})
}

// pushesHeld lets h push "one", until it has agreed and is about to decide, through rdb: that waits for the end of release.
func (h *host) pushesHeld(t *testing.T, rdb redis.UniversalClient) (release chan struct{}, done chan error) {
	t.Helper()
	hold := &blockingHook{what: "history", came: make(chan struct{}, 9), release: make(chan struct{})}
	rdb.AddHook(hold)
	done = make(chan error, 1)
	go func() {
		_, _, err := h.Push(t.Context(), of("one"))
		done <- err
	}()
	<-hold.came
	return hold.release, done
}

// of is a push of that text.
func of(text string) cluster.Push {
	b := bundle.Bundle{Main: "a", Files: map[string]string{"a": text}}
	return cluster.Push{Bundle: b, Config: configOf(b.Hash()), Author: "ann"}
}

func TestPush_AllOrNothing(t *testing.T) {
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b", "c")
	generation, nodes, err := all[0].Push(t.Context(), of("one"))
	if err != nil || generation != 1 || len(nodes) != 3 {
		t.Fatalf("Push = %d, %v, %v", generation, nodes, err)
	}
	all[2].mu.Lock()
	all[2].refuse = errors.New("not with me")
	all[2].mu.Unlock()
	var refused *cluster.RefusedError
	if _, _, err := all[0].Push(t.Context(), of("two")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "node c: not with me") {
		t.Fatalf("Push = %v; want what c said", err)
	}
	for _, h := range all {
		if !h.is("one") {
			t.Errorf("node %s serves %q after a push that was refused", h.ID(), h.text)
		}
	}
	if answers, err := all[1].Try(t.Context(), of("two")); err != nil || len(answers) != 3 || answers[0].Said != "ok" || answers[2].Said != "not with me" {
		t.Errorf("Try = %+v, %v", answers, err)
	}
	history, err := all[1].History(t.Context())
	if err != nil || len(history) != 1 || history[0].Author != "ann" || history[0].Node != "a" || history[0].Bundle.Files["a"] != "one" || time.Since(history[0].At).Abs() > time.Minute {
		t.Errorf("History = %+v, %v", history, err)
	}
}

// A node that comes while a push is under way is heard too, before it is decided.
func TestPush_HearsWhoComesLate(t *testing.T) {
	s := redistest.Start(t)
	slow := dial(t, s.Addr)
	first, _ := hosted(t, slow, "a")
	await.Until(t, "a is known", func() bool { m, err := first.Nodes(t.Context()); return err == nil && len(m) == 1 })
	release, done := first.pushesHeld(t, slow)
	late := &host{Node: joinAs(dial(t, s.Addr), cluster.Options{Prefix: "test", ID: "b", Source: "redis"})}
	running(t, func(ctx context.Context) { late.Run(ctx, "127.0.0.1:1") })
	await.Until(t, "b is known", func() bool { m, err := late.Nodes(t.Context()); return err == nil && len(m) == 2 })
	close(release)
	decided := make(chan bool, 9)
	take := func(ctx context.Context, b bundle.Bundle) (cluster.Prepared, error) {
		decided <- dial(t, s.Addr).HExists(ctx, "test:{cluster}:config", "pushed").Val()
		return late.take(ctx, b)
	}
	running(t, func(ctx context.Context) {
		late.Follow(ctx, &cluster.Follower{Prepare: take, Serve: func(cluster.Entry) {}, Applied: func(cluster.Entry, error) {}})
	})
	check(t, <-done)
	if <-decided {
		t.Error("it was decided before b was heard")
	}
	await.Until(t, "b serves it", func() bool { return late.is("one") })
}

// What a pusher that was held up for too long wants to decide is not decided.
func TestPush_OvertakenDecidesNothing(t *testing.T) {
	s := redistest.Start(t)
	slow, other := dial(t, s.Addr), dial(t, s.Addr)
	a, _ := hosted(t, slow, "a")
	b, _ := hosted(t, other, "b")
	await.Until(t, "both are known", func() bool { m, err := b.Nodes(t.Context()); return err == nil && len(m) == 2 })
	release, done := a.pushesHeld(t, slow)
	var under *cluster.PushInProgressError
	if _, _, err := b.Push(t.Context(), of("two")); !errors.As(err, &under) || under.Author != "ann" || under.Node != "a" {
		t.Errorf("Push beside another = %v; want who pushes", err)
	}
	other.Del(t.Context(), "test:{cluster}:push") // as if it had given no sign for too long
	pushed := make(chan error, 1)
	go func() { // a follows, but for its decision: it answers, and serves it later
		_, _, err := b.Push(t.Context(), of("two"))
		pushed <- err
	}()
	await.Until(t, "the other push is decided", func() bool {
		return other.HGet(t.Context(), "test:{cluster}:config", "pushed").Val() == "1"
	})
	close(release)
	if err := <-done; !errors.Is(err, cluster.ErrOvertaken) {
		t.Errorf("Push = %v; want ErrOvertaken", err)
	}
	if err := <-pushed; err != nil {
		t.Error(err)
	}
	await.Until(t, "both serve the other push", func() bool { return a.is("two") && b.is("two") })
	if all, err := b.History(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("History = %+v, %v; want the other push alone", all, err)
	}
}

// What a pusher that gives no sign any more has begun holds up others for two seconds.
func TestPush_NextTakesOverFromADeadOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	slow, other := dial(t, s.Addr), dial(t, s.Addr)
	a, _ := hosted(t, slow, "a")
	b, _ := hosted(t, other, "b")
	await.Until(t, "both are known", func() bool { m, err := b.Nodes(t.Context()); return err == nil && len(m) == 2 })
	release, dead := a.pushesHeld(t, slow)
	start, held := time.Now(), 0
	pushed := make(chan error, 1)
	go func() {
		for again := time.NewTicker(20 * time.Millisecond); ; <-again.C {
			_, _, err := b.Push(t.Context(), of("two"))
			if under := (*cluster.PushInProgressError)(nil); !errors.As(err, &under) {
				pushed <- err
				return
			}
			held++
		}
	}()
	await.Until(t, "the next push is decided", func() bool {
		return other.HGet(t.Context(), "test:{cluster}:config", "pushed").Val() == "1"
	})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the next push is decided after %v", took)
	}
	close(release)
	if err := <-dead; !errors.Is(err, cluster.ErrOvertaken) {
		t.Errorf("Push = %v; want ErrOvertaken", err)
	}
	if err := <-pushed; err != nil || held == 0 {
		t.Errorf("the next push: %v, held up %d times", err, held)
	}
}

// A decision whose answer is lost on its way is known to be one.
func TestPush_LostAnswerIsAskedAgain(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewFaultProxy(t, s.Addr)
	a := hosts(t, p.Addr, "a")[0]
	pushes(t, a.Node, "zero") // Redis knows the script from now on
	p.Lose("test:{cluster}:removed")
	generation, _, err := a.Push(t.Context(), of("one"))
	if err != nil || generation != 2 || p.Lost() != 1 {
		t.Errorf("Push = %d, %v, %d answers lost; want generation 2 in spite of a lost one", generation, err, p.Lost())
	}
	if all, err := a.History(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("History = %+v, %v; want each once", all, err)
	}
}

// While what was pushed is served, a node's own file is not published.
func TestAgree_OwnFileIsNoWayRoundAPush(t *testing.T) {
	a := hosts(t, redistest.Start(t).Addr, "a")[0]
	pushes(t, a.Node, "one")
	if number, err := agree(a.Node, "file"); number != 0 || !errors.Is(err, cluster.ErrBehind) {
		t.Errorf("Agree = %d, %v; want ErrBehind", number, err)
	}
}

// The history holds the last 20 pushes, the last first, each with the files that were
// pushed; what was gone back to says so, and counts as a push.
func TestHistory_KeepsTheLastTwenty(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := hosts(t, s.Addr, "a")[0]
	if all, err := n.History(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("before the first push: %v, %v; want none", all, err)
	}
	if e, err := n.Pushed(t.Context()); err != nil || e.Generation != 0 {
		t.Fatalf("before the first push: %v, %v; want none", e, err)
	}
	const pushes = 23
	for i := range pushes {
		if got, _, err := n.Push(t.Context(), of(fmt.Sprint("text ", i+1))); err != nil || got != int64(i+1) {
			t.Fatalf("push %d: %d, %v", i+1, got, err)
		}
	}
	back := of("text 4")
	back.From, back.Author = 4, "bob"
	if _, _, err := n.Push(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	all, err := n.History(t.Context())
	if err != nil || len(all) != 20 {
		t.Fatalf("%d entries, %v; want 20", len(all), err)
	}
	for i, e := range all {
		generation, text, author, from := int64(pushes+1-i), fmt.Sprint("text ", pushes+1-i), "ann", int64(0)
		if i == 0 {
			text, author, from = "text 4", "bob", 4
		}
		if e.Generation != generation || e.Bundle.Files["a"] != text || e.Hash != e.Bundle.Hash() || e.Author != author || e.From != from || e.Node != "a" || e.At.IsZero() {
			t.Errorf("entry %d is %+v; want generation %d by %s from %d with %q", i, e, generation, author, from, text)
		}
	}
	if last, err := n.Pushed(t.Context()); err != nil || last.Generation != pushes+1 || last.From != 4 {
		t.Errorf("pushed last is %+v, %v; want the first of the history", last, err)
	}
	if !slices.IsSortedFunc(all, func(a, b cluster.Entry) int { return b.At.Compare(a.At) }) {
		t.Error("the times of the history go back and forth")
	}
}

// Of several who push at the same moment each is told either that it is done, with a
// number of its own, or who pushes; what is served last is what was decided last.
func TestPush_ManyAtOnceHaveNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a", "b")
	var mu sync.Mutex
	done := map[int64]string{}
	var pushing sync.WaitGroup
	for i := range 8 {
		pushing.Go(func() {
			text, again := fmt.Sprint("push ", i), time.NewTicker(20*time.Millisecond)
			defer again.Stop()
			for ; ; <-again.C {
				generation, _, err := all[i%2].Push(t.Context(), of(text))
				var other *cluster.PushInProgressError
				switch {
				case errors.As(err, &other):
					if other.Author != "ann" || other.Node != "a" && other.Node != "b" || !strings.Contains(other.Error(), "ann has been pushing for ") {
						t.Errorf("told of %+v; want who pushes, and where", other)
					}
					continue
				case err != nil:
					t.Errorf("%s: %v", text, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if was := done[generation]; was != "" {
					t.Errorf("%s and %s are both generation %d", was, text, generation)
				}
				done[generation] = text
				return
			}
		})
	}
	pushing.Wait()
	if len(done) != 8 || done[8] == "" {
		t.Fatalf("decided are %v; want generations 1 to 8", done)
	}
	for _, h := range all {
		await.Until(t, "the last is served", func() bool { return h.is(done[8]) })
	}
	entries, err := all[1].History(t.Context())
	check(t, err)
	for _, e := range entries {
		if e.Bundle.Files["a"] != done[e.Generation] {
			t.Errorf("generation %d is %q in the history; want %q", e.Generation, e.Bundle.Files["a"], done[e.Generation])
		}
	}
}

// A history of which Redis lost its tail, or that somebody has added to, is as good as
// what is left of it: one entry that cannot be read is named, and the last push is
// known all the same if it is not that one.
func TestHistory_AnEntryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	n := hosts(t, s.Addr, "a")[0]
	pushes(t, n.Node, "one", "two")
	whole := rdb.LIndex(t.Context(), "test:{cluster}:history", 1).Val()
	for what, text := range map[string]string{"cut": whole[:len(whole)/2], "of another kind": `{"generation":1,"bundle":7}`, "cut inside": strings.Replace(whole, `"bundle":"`, `"bundle":"AAAA`, 1)} {
		rdb.LSet(t.Context(), "test:{cluster}:history", 1, text)
		if all, err := n.History(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "read history: ") {
			t.Errorf("an entry %s: %v, %v; want an error", what, all, err)
		}
		if last, err := n.Pushed(t.Context()); err != nil || last.Bundle.Files["a"] != "two" {
			t.Errorf("behind the last an entry is %s: pushed last is %+v, %v", what, last, err)
		}
	}
	generation, _, err := n.Push(t.Context(), of("three"))
	if err != nil || generation != 3 {
		t.Errorf("a push upon such a history: %d, %v; want generation 3", generation, err)
	}
}
