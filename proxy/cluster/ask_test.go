package cluster_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/directive"
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
	running(t, func(ctx context.Context) {
		n.ServeQuestions(ctx, func(_ context.Context, q cluster.Question) cluster.Seen { return see(q) })
	})
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
	a, _ := join(t, dial(t, redistest.Start(t).Addr), "a")
	await.Until(t, "a is known", func() bool {
		members, err := a.Nodes(t.Context())
		return err == nil && len(members) == 1
	})
	if all, err := a.Ask(t.Context(), cluster.Question{Top: &view.TopQuery{}}); err != nil || all != nil {
		t.Errorf("Ask = %+v, %v; want nothing", all, err)
	}
}

func TestAsk_SaysThatRedisIsAway(t *testing.T) {
	n := joinAs(dial(t, "127.0.0.1:1"), cluster.Options{Prefix: "test", ID: "a"})
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
	check(t, rdb.Publish(t.Context(), "test:{cluster}:questions", `{"id":"lost","node":"gone","question":{"decisions":{"N":1}}}`).Err())
	await.Until(t, "b replies", func() bool { return rdb.Exists(t.Context(), "test:{cluster}:replies:lost").Val() == 1 })
	if ttl := rdb.PTTL(t.Context(), "test:{cluster}:replies:lost").Val(); ttl <= 0 || ttl > 5*time.Second {
		t.Errorf("the reply is kept for %v", ttl)
	}
	for _, none := range []string{`{`, `{"node":"gone"}`, strings.Repeat("a", 9<<10)} {
		check(t, rdb.Publish(t.Context(), "test:{cluster}:questions", none).Err())
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

// What one node orders the others follow, for as long as it lasts; what is ordered while Redis is away
// holds there, and on all when it is back, also an end.
func TestDirectives(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	way := redistest.NewFaultProxy(t, s.Addr)
	var near, far atomic.Pointer[directive.Set]
	a := cluster.NewDirectives(dial(t, way.Addr), "test", near.Store)
	b := cluster.NewDirectives(dial(t, s.Addr), "test", func(s *directive.Set) { far.Store(s) })
	order := func(network string, d time.Duration) directive.Directive {
		return directive.Directive{Network: netip.MustParsePrefix(network), Until: time.Now().Add(d), Who: "anna"}
	}
	put := func(one directive.Directive) (everywhere bool) {
		t.Helper()
		everywhere, err := a.Put(t.Context(), one)
		check(t, err)
		return everywhere
	}
	if !put(order("192.0.2.0/24", time.Hour)) {
		t.Error("with Redis a ban does not hold everywhere")
	}
	if err := b.Sync(t.Context()); err != nil || len(far.Load().All()) != 1 || far.Load().All()[0].Who != "anna" {
		t.Fatalf("the other node knows %v, %v", far.Load().All(), err)
	}
	if rest := time.Until(far.Load().All()[0].Until); rest < 59*time.Minute || rest > time.Hour {
		t.Errorf("it lasts for %v", rest)
	}
	way.Redirect("127.0.0.1:1")
	lasting, short := order("198.51.100.0/24", time.Hour), order("203.0.113.0/24", time.Millisecond)
	if put(lasting) || put(short) {
		t.Error("without Redis a ban is said to hold everywhere")
	}
	if found, everywhere := a.Remove(t.Context(), order("192.0.2.0/24", 0)); !found || everywhere {
		t.Errorf("removed: found %t, everywhere %t", found, everywhere)
	}
	if all := near.Load().All(); len(all) == 0 || all[0].Network.String() != "198.51.100.0/24" || isSettled(a) {
		t.Errorf("while Redis is away this node knows %v, and nothing waits", all)
	}
	way.Redirect(s.Addr)
	await.Until(t, "Redis is reachable", func() bool { return a.Sync(t.Context()) == nil })
	if err := b.Sync(t.Context()); err != nil || !isSettled(a) || len(far.Load().All()) != 1 || far.Load().All()[0].Network.String() != "198.51.100.0/24" {
		t.Errorf("the other node knows %v, %v; want the one that lasts", far.Load().All(), err)
	}
	ended := order("192.0.2.0/24", 0)
	ended.Until = time.Time{}
	for _, c := range []struct {
		of   directive.Directive
		hold bool
	}{{lasting, true}, {ended, true}, {short, false}} {
		if settled, hold := a.Settled(c.of); !settled || hold != c.hold {
			t.Errorf("%s: settled %t, holds %t", c.of.Name(), settled, hold)
		}
	}
	if found, everywhere := b.Remove(t.Context(), order("192.0.2.0/24", 0)); found || !everywhere {
		t.Errorf("what is gone: found %t, everywhere %t", found, everywhere)
	}
}

func isSettled(d *cluster.Directives) bool {
	settled, _ := d.Settled()
	return settled
}

// Where other nodes have taken the last room, one too many is not put, and what was changed with it is.
func TestDirectives_NoRoomForOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	way := redistest.NewFaultProxy(t, s.Addr)
	a := cluster.NewDirectives(dial(t, way.Addr), "test", func(*directive.Set) {})
	b := cluster.NewDirectives(dial(t, s.Addr), "test", func(*directive.Set) {})
	maintenance := func(i int) directive.Directive {
		return directive.Directive{Route: strconv.Itoa(i), At: time.Now().UTC().Truncate(time.Millisecond), Until: time.Now().Add(time.Hour)}
	}
	held := map[string]any{}
	for i := range directive.Max - 1 {
		one := maintenance(i)
		text, _ := json.Marshal(one)
		held[one.Name()] = fmt.Sprint(one.Until.UnixMilli(), " ", string(text)) // as directives.lua writes it
	}
	check(t, dial(t, s.Addr).HSet(t.Context(), "test:{cluster}:directives", held).Err())
	check(t, a.Sync(t.Context()))
	if _, err := b.Put(t.Context(), maintenance(directive.Max)); err != nil {
		t.Fatal(err)
	}
	if everywhere, err := a.Put(t.Context(), maintenance(-1)); everywhere || !errors.Is(err, cluster.ErrTooManyDirectives) {
		t.Errorf("one too many: everywhere %t, %v", everywhere, err)
	}
	b.Remove(t.Context(), maintenance(0))
	check(t, a.Sync(t.Context()))
	way.Redirect("127.0.0.1:1")
	last := maintenance(-2)
	a.Put(t.Context(), last)
	a.Remove(t.Context(), maintenance(1))
	b.Put(t.Context(), maintenance(-3))
	way.Redirect(s.Addr)
	await.Until(t, "Redis is reachable", func() bool { return a.Sync(t.Context()) == nil })
	if settled, hold := a.Settled(last); !settled || hold {
		t.Errorf("without room: settled %t, holds %t", settled, hold)
	}
	if found, _ := a.Remove(t.Context(), maintenance(1)); found || len(a.All()) != directive.Max-1 {
		t.Errorf("what was ended beside it: found %t, of %d", found, len(a.All()))
	}
}

// What Redis has lost, the first node that sees that restores: what holds, and what was ended. What was ordered meanwhile
// holds as well.
func TestDirectives_LostByRedisAreRestored(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	order := func(route string) directive.Directive {
		return directive.Directive{Route: route, Until: time.Now().Add(time.Hour)}
	}
	a, b := cluster.NewDirectives(rdb, "test", func(*directive.Set) {}), cluster.NewDirectives(rdb, "test", func(*directive.Set) {})
	sync := func(d *cluster.Directives) (routes string) {
		check(t, d.Sync(t.Context()))
		for _, one := range d.All() {
			routes += one.Route + " "
		}
		return routes
	}
	a.Put(t.Context(), order("old"))
	a.Put(t.Context(), order("ended"))
	for _, key := range []string{"directives", "directives:changed"} { // the older snapshot
		rdb.Copy(t.Context(), "test:{cluster}:"+key, "then:{cluster}:"+key, 0, true)
	}
	a.Put(t.Context(), order("new"))
	a.Remove(t.Context(), order("ended"))
	sync(b)
	for _, lose := range []func(){
		func() { rdb.Del(t.Context(), "test:{cluster}:directives", "test:{cluster}:directives:changed") },
		func() {
			for _, key := range []string{"directives", "directives:changed"} {
				rdb.Rename(t.Context(), "then:{cluster}:"+key, "test:{cluster}:"+key)
			}
		},
	} {
		lose()
		if near, late := sync(b), sync(cluster.NewDirectives(rdb, "test", func(*directive.Set) {})); near != "new old " || late != near {
			t.Errorf("a node has %q, and one that starts later %q; want what held", near, late)
		}
	}
	lost := rdb.Del(t.Context(), "test:{cluster}:directives", "test:{cluster}:directives:changed")
	if everywhere, err := a.Put(t.Context(), order("more")); lost.Err() != nil || !everywhere || err != nil || !isSettled(a) {
		t.Errorf("a change of what is lost: everywhere %t, %v", everywhere, err)
	}
	a.Remove(t.Context(), order("old"))
	if got := sync(b); got != "more new " {
		t.Errorf("the other node has %q; want it without what was ended", got)
	}
}

// What a node knows nothing of it does not end when it hears of it.
func TestDirectives_UnknownIsNotEnded(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	a, b := cluster.NewDirectives(rdb, "test", func(*directive.Set) {}), cluster.NewDirectives(rdb, "test", func(*directive.Set) {})
	one := directive.Directive{Route: "a", Until: time.Now().Add(time.Hour)}
	a.Put(t.Context(), one)
	if found, _ := b.Remove(t.Context(), one); found || b.Sync(t.Context()) != nil || len(b.All()) != 1 {
		t.Errorf("found %t, and %d hold then; want that nothing is ended of which it is said that there is none", found, len(b.All()))
	}
}

// A single process keeps them in memory; their number is bounded. What is over takes no room, and cannot be ended.
func TestDirectives_InMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Pointer[directive.Set]
		d := cluster.NewDirectives(nil, "", set.Store)
		put := func(route string) (bool, error) {
			return d.Put(t.Context(), directive.Directive{Route: route, Until: time.Now().Add(time.Minute)})
		}
		for i := range directive.Max + 1 {
			everywhere, err := put(strconv.Itoa(i))
			if full := i == directive.Max; full != errors.Is(err, cluster.ErrTooManyDirectives) || everywhere == full {
				t.Fatalf("directive %d: everywhere %t, %v", i, everywhere, err)
			}
		}
		if n := len(set.Load().All()); n != directive.Max || len(d.All()) != n {
			t.Errorf("%d hold, want %d", n, directive.Max)
		}
		time.Sleep(time.Minute)
		if found, _ := d.Remove(t.Context(), directive.Directive{Route: "1"}); found {
			t.Error("what is over was ended")
		}
		if _, err := put("new"); err != nil || len(d.All()) != 1 {
			t.Errorf("%v, %d hold", err, len(d.All()))
		}
	})
}

// claim claims name with value, and returns what was there.
func claim(t *testing.T, o cluster.Once, name, value string) string {
	t.Helper()
	found, err := o.Claim(t.Context(), name, []byte(value))
	check(t, err)
	return string(found)
}

func put(t *testing.T, o cluster.Once, name, value string) {
	t.Helper()
	check(t, o.Put(t.Context(), name, []byte(value)))
}

// The first claim wins, on whichever node; what was put is found by all until it is removed.
func TestOnce_TheFirstClaimWins(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer rdb.Close()
	alone := cluster.NewOnce(nil, "")
	for name, nodes := range map[string][2]cluster.Once{"memory": {alone, alone}, "redis": {cluster.NewOnce(rdb, "test"), cluster.NewOnce(rdb, "test")}} {
		t.Run(name, func(t *testing.T) {
			near, far := nodes[0], nodes[1]
			if first, second, other := claim(t, near, "a", "1"), claim(t, far, "a", "2"), claim(t, far, "b", "3"); first != "" || second != "1" || other != "" {
				t.Errorf("found %q, %q and %q; want nothing, 1, nothing", first, second, other)
			}
			put(t, near, "a", "done")
			if got := claim(t, far, "a", "4"); got != "done" {
				t.Errorf("found %q; want done", got)
			}
			put(t, near, "a", "")
			if got := claim(t, far, "a", "5"); got != "" {
				t.Errorf("found %q after it was removed", got)
			}
		})
	}
	rdb.Close()
	if _, err := cluster.NewOnce(rdb, "test").Claim(t.Context(), "a", nil); err == nil {
		t.Error("a claim was made without redis")
	}
}

// In Redis both have the same lives as in memory.
func TestOnce_ClaimsAndValuesExpire(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer rdb.Close()
	shared := cluster.NewOnce(rdb, "test")
	for value, want := range map[string]time.Duration{"": time.Minute, "done": 24 * time.Hour} {
		id := "id-" + value // in either order
		claim(t, shared, id, "1")
		if value != "" {
			put(t, shared, id, value)
		}
		if left := rdb.TTL(t.Context(), "test:{cluster}:once:"+id).Val(); left > want || left < want-time.Minute/2 {
			t.Errorf("%q is kept for %v; want %v", value, left, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		o := cluster.NewOnce(nil, "")
		claim(t, o, "a", "1")
		claim(t, o, "b", "1")
		put(t, o, "b", "done")
		time.Sleep(time.Minute)
		if a, b := claim(t, o, "a", "2"), claim(t, o, "b", "2"); a != "" || b != "done" {
			t.Errorf("after a minute found %q and %q; want nothing and done", a, b)
		}
		time.Sleep(24 * time.Hour)
		if b := claim(t, o, "b", "2"); b != "" {
			t.Errorf("after a day found %q", b)
		}
		for i := range 1000 {
			claim(t, o, fmt.Sprint(i), "1")
		}
		put(t, o, "a", "late")
		if a, last := claim(t, o, "a", "3"), claim(t, o, "999", "3"); a != "" || last != "1" {
			t.Errorf("found %q and %q; want the oldest of more than 1000 forgotten", a, last)
		}
	})
}
