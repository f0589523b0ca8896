package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

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
		if done, err := n.Push(t.Context(), of(fmt.Sprint("text ", i+1))); err != nil || done.Generation != int64(i+1) {
			t.Fatalf("push %d: %+v, %v", i+1, done, err)
		}
	}
	back := of("text 4")
	back.From, back.Author = 4, "bob"
	if _, err := n.Push(t.Context(), back); err != nil {
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
				out, err := all[i%2].Push(t.Context(), of(text))
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
				if was := done[out.Generation]; was != "" {
					t.Errorf("%s and %s are both generation %d", was, text, out.Generation)
				}
				done[out.Generation] = text
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
	if err != nil {
		t.Fatal(err)
	}
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
	for _, text := range []string{"one", "two"} {
		if _, err := n.Push(t.Context(), of(text)); err != nil {
			t.Fatal(err)
		}
	}
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
	done, err := n.Push(t.Context(), of("three"))
	if err != nil || done.Generation != 3 {
		t.Errorf("a push upon such a history: %+v, %v; want generation 3", done, err)
	}
}
