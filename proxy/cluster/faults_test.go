package cluster_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A reading is a call that reads Redis, and what its errors begin with.
type reading struct {
	about string
	call  func(ctx context.Context, rdb redis.UniversalClient) error
}

// readings are all calls of an operator, of a task of the leader and of a start.
func readings() []reading {
	node := func(rdb redis.UniversalClient) *cluster.Node {
		return joinAs(rdb, cluster.Options{Prefix: "test", ID: "a"})
	}
	task := func(t cluster.Task, ctx context.Context) error {
		_, err := t.Run(ctx, cluster.Term{Token: 1})
		return err
	}
	return []reading{
		{"read nodes", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := node(rdb).Nodes(ctx)
			return err
		}},
		{"read history", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := node(rdb).History(ctx)
			return err
		}},
		{"read pushed config", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := node(rdb).Pushed(ctx)
			return err
		}},
		{"read config", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := node(rdb).Number(ctx)
			return err
		}},
		{"begin push", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := node(rdb).Try(ctx, of("one"))
			return err
		}},
		{"read removed limits", func(ctx context.Context, rdb redis.UniversalClient) error {
			return task(cluster.NewSweep(rdb, "test", time.Hour, node(rdb).Nodes).Task(), ctx)
		}},
		{"read changed minutes", func(ctx context.Context, rdb redis.UniversalClient) error {
			return task(cluster.NewStatistics(rdb, "test", "a", newCounter()).Task(), ctx)
		}},
		{"read leader", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := cluster.NewLeader(cluster.LeaderOptions{Client: rdb, Prefix: "test", ID: "a"}).Current(ctx)
			return err
		}},
		{"agree on log salt", func(ctx context.Context, rdb redis.UniversalClient) error {
			_, err := cluster.Salt(ctx, rdb, "test", [32]byte{1})
			return err
		}},
	}
}

// What cannot be asked says what was asked for, and wraps why.
func TestFaults_RedisThatDoesNotAnswer(t *testing.T) {
	for _, r := range readings() {
		err := r.call(t.Context(), dial(t, "127.0.0.1:1"))
		if err == nil || !strings.HasPrefix(err.Error(), r.about+": ") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v; want %s, and why", err, r.about)
		}
	}
}

// Somebody else's keys under our names are an error and no panic, and the error says
// which of our things it is.
func TestFaults_KeysOfAnotherType(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	for _, name := range []string{"nodes", "members", "limits", "history", "config", "push", "removed", "minutes", "leader", "runs", "salt"} {
		check(t, rdb.SAdd(t.Context(), "test:{cluster}:"+name, "x").Err())
	}
	for _, r := range readings() {
		err := r.call(t.Context(), rdb)
		if err == nil || !strings.HasPrefix(err.Error(), r.about+": ") || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("got %v; want %s: WRONGTYPE", err, r.about)
		}
	}
}

// Values that no Weir has written are an error, never an empty answer.
func TestFaults_ValuesThatAreNone(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	n, _ := join(t, rdb, "a")
	ctx := t.Context()
	for _, text := range []string{"", "nonsense", `{"generation": 1}`, `{"bundle": "bm9uc2Vuc2U="}`, `{"generation": "one"}`} {
		rdb.Del(ctx, "test:{cluster}:history")
		rdb.RPush(ctx, "test:{cluster}:history", text)
		if all, err := n.History(ctx); err == nil || !strings.HasPrefix(err.Error(), "read history: ") {
			t.Errorf("the history of %q is %v, %v; want an error", text, all, err)
		}
		if e, err := n.Pushed(ctx); err == nil {
			t.Errorf("what was pushed last, of %q, is %v; want an error", text, e)
		}
	}
	rdb.ZAdd(ctx, "test:{cluster}:nodes", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "b"})
	rdb.HSet(ctx, "test:{cluster}:members", "b", "{")
	if all, err := n.Nodes(ctx); err == nil || !strings.HasPrefix(err.Error(), "read nodes: ") || !strings.Contains(err.Error(), "node b says {") {
		t.Errorf("nodes are %v, %v; want an error that names the one", all, err)
	}
}

// A node that reads its own file cannot serve what is pushed: the push says what to
// write there.
func TestFaults_PushBesideANodeWithAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a")
	join(t, dial(t, s.Addr), "b")
	await.Until(t, "both are known", func() bool { return all[0].Live() == 2 })
	var refused *cluster.RefusedError
	if _, _, err := all[0].Push(t.Context(), of("one")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "node b: reads its own file; write reload: {source: redis} there") {
		t.Errorf("Push = %v; want what to write on b", err)
	}
	answers, err := all[0].Try(t.Context(), of("one"))
	if err != nil || len(answers) != 2 || answers[0].Said != "ok" || !strings.HasPrefix(answers[1].Said, "reads its own file") {
		t.Errorf("Try = %v, %v; want ok from a alone", answers, err)
	}
	if all[0].is("one") {
		t.Error("the one that could serves what was refused")
	}
}

// A push that its caller gives up leaves nothing that the next one waits for.
func TestFaults_PushThatIsGivenUp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := hosts(t, s.Addr, "a")
	rdb := dial(t, s.Addr)
	silent := joinAs(rdb, cluster.Options{Prefix: "test", ID: "b", Source: "redis"})
	running(t, func(ctx context.Context) { silent.Run(ctx, "127.0.0.1:1") }) // it lives and does not follow
	await.Until(t, "both are known", func() bool { return all[0].Live() == 2 })
	mine := errors.New("the operator has left")
	asking, leave := context.WithCancelCause(t.Context())
	given := make(chan error, 1)
	go func() {
		_, _, err := all[0].Push(asking, of("one"))
		given <- err
	}()
	await.Until(t, "the push is under way", func() bool { return rdb.Exists(t.Context(), "test:{cluster}:push").Val() == 1 })
	await.Until(t, "b alone is waited for", func() bool { return slices.Equal(all[0].Awaited(), []string{"b"}) })
	var other *cluster.PushInProgressError
	if _, _, err := all[0].Push(t.Context(), of("two")); !errors.As(err, &other) || !strings.Contains(err.Error(), "ann has been pushing for ") || !strings.Contains(err.Error(), " through node a; wait until that is over") {
		t.Errorf("a second push = %v; want who pushes", err)
	}
	leave(mine)
	if err := <-given; !errors.Is(err, mine) && !errors.Is(err, context.Canceled) {
		t.Errorf("Push = %v; want the cause", err)
	}
	if n := rdb.Exists(t.Context(), "test:{cluster}:push").Val(); n != 0 {
		t.Error("the push is under way still")
	}
	if all[0].is("one") || len(all[0].Awaited()) > 0 {
		t.Errorf("what was given up is served: %v, or waits for %v", all[0].is("one"), all[0].Awaited())
	}
}

// A lostReply has the replies lost to those commands that Redis has run and of which lose is true.
type lostReply struct {
	lose atomic.Pointer[func(redis.Cmder) bool]
}

func (l *lostReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lostReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lostReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if lose := l.lose.Load(); err == nil && lose != nil && (*lose)(cmd) {
			err = io.EOF
		}
		return err
	}
}

// What Redis has lost is restored also if the first that a node tells it then is a change, whose reply is lost.
func TestDirectives_AreRestoredAfterALostReply(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	var reply lostReply
	rdb.AddHook(&reply)
	order := func(route string) directive.Directive {
		return directive.Directive{Route: route, Until: time.Now().Add(time.Hour)}
	}
	a, b := cluster.NewDirectives(rdb, "test", func(*directive.Set) {}), cluster.NewDirectives(rdb, "test", func(*directive.Set) {})
	a.Put(t.Context(), order("held"))
	check(t, b.Sync(t.Context()))
	check(t, rdb.Del(t.Context(), "test:{cluster}:directives", "test:{cluster}:directives:changed").Err())
	reply.lose.Store(new(func(redis.Cmder) bool { return true }))
	if everywhere, err := a.Put(t.Context(), order("more")); everywhere || err != nil {
		t.Errorf("without a reply: everywhere %t, %v", everywhere, err)
	}
	reply.lose.Store(nil)
	for _, d := range []*cluster.Directives{b, a, b} {
		check(t, d.Sync(t.Context()))
	}
	if !isSettled(a) || len(a.All()) != 2 || len(b.All()) != 2 {
		t.Errorf("one node has %v, another %v; want what held, and what was ordered meanwhile", a.All(), b.All())
	}
}

// An entry of which the reply is lost is written again with the next one, and stands in the trail once.
func TestAudit_OfALostReply(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	var reply lostReply
	rdb.AddHook(&reply)
	a := cluster.NewAudit(rdb, "test", "a", func(view.AuditEntry) {})
	check(t, a.Record(t.Context(), view.AuditEntry{Action: "zero"}, nil))
	reply.lose.Store(new(func(redis.Cmder) bool { return true }))
	if err := a.Record(t.Context(), view.AuditEntry{Action: "one"}, nil); err == nil {
		t.Error("Record: no error without a reply")
	}
	reply.lose.Store(nil)
	check(t, a.Record(t.Context(), view.AuditEntry{Action: "two"}, nil))
	page, err := a.Page(t.Context(), "", 9)
	if actions := view.Each(page.Entries, func(e view.AuditEntry) string { return e.Action }); err != nil || !slices.Equal(actions, []string{"two", "one", "zero"}) {
		t.Errorf("%v, %v; want two, one and zero", actions, err)
	}
}

// A commit that Redis has made, and lost with its reply when a replica took over, is served all the same: nobody says that
// nothing has changed.
func TestPush_CommitThatRedisLoses(t *testing.T) {
	s := redistest.Start(t)
	rdb, other := dial(t, s.Addr), dial(t, s.Addr)
	var reply lostReply
	rdb.AddHook(&reply)
	a, _ := hosted(t, rdb, "a")
	b, _ := hosted(t, other, "b")
	await.Until(t, "both are known", func() bool { m, err := b.Nodes(t.Context()); return err == nil && len(m) == 2 })
	pushes(t, a.Node, "one")
	serve := func() bool { return a.is("two") && b.is("two") }
	lose := func(cmd redis.Cmder) bool {
		if !slices.Contains(cmd.Args(), any("test:{cluster}:removed")) {
			return false
		}
		reply.lose.Store(nil)
		await.Until(t, "both serve it", serve)
		other.HSet(t.Context(), "test:{cluster}:config", "number", 1, "pushed", 1, "push", "before", "hash", of("one").Bundle.Hash())
		other.LPop(t.Context(), "test:{cluster}:history")
		return true
	}
	reply.lose.Store(&lose)
	if _, _, err := a.Push(t.Context(), of("two")); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("Push = %v; want ErrUnknown", err)
	}
	await.Until(t, "what is served is restored", func() bool { all, err := b.History(t.Context()); return err == nil && len(all) == 2 })
	if !serve() {
		t.Error("what was pushed is not served any more")
	}
}

func TestRefused_NamesWhoIsSilent(t *testing.T) {
	err := &cluster.RefusedError{Answers: []view.NodeAnswer{{Node: "a", Said: "ok"}, {Node: "b"}, {Node: "c", Said: "no such file"}}}
	if got, want := err.Error(), "push refused; nothing has changed; node b: no answer; node c: no such file"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

// What operators compare between nodes has all that makes a limit another one.
func TestDefine(t *testing.T) {
	c, err := config.LoadText("weir.yaml", []byte(`
routes:
  - name: send
    match: {path: /}
    upstream: echo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [1/60s, 5/1h]}
      - {name: fan, key: client_ip, distinct: "header:X-Phone", rates: [3/1h]}
      - {name: backoff, key: "header:X-Phone", cooldown: [60s, 90s, 1d]}
      - {name: smooth, key: client_ip, rate: 100/1m, algorithm: gcra, burst: 5, scope: per_instance, mode: off}
`))
	check(t, err)
	all := cluster.Define(c)
	for name, want := range map[string]string{
		"send.phone": "[1/1m 5/1h] ", "send.fan": "[3/1h] header:X-Phone", "send.backoff": "[1m 1m30s 1d] ", "send.smooth": "[100/1m] ",
	} {
		d, ok := all[name]
		if got := list(d.Rates) + " " + d.Distinct; !ok || got != want {
			t.Errorf("%s is %+v; want %s", name, d, want)
		}
	}
	if d := all["send.smooth"]; d.Algorithm != "gcra" || d.Burst != 5 || d.Scope != "per_instance" || len(all) != 4 {
		t.Errorf("of %d, the one that is off is %+v", len(all), d)
	}
}

func list(texts []string) string { return "[" + strings.Join(texts, " ") + "]" }
