package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// heardBy are the changes that a store hears of.
type heardBy struct {
	mu  sync.Mutex
	all []limiter.Change
}

func (h *heardBy) hear(c limiter.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, c)
}

func (h *heardBy) is(want ...limiter.Change) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.EqualFunc(h.all, want, func(a, b limiter.Change) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
}

// What one process announces all others hear of, in order, and it does not.
func TestChanges_AreHeardOfByOthers(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	near, far, third := s.hearing(), s.hearing(), s.hearing()
	var own, others, more heardBy
	near.OnChange(own.hear)
	far.OnChange(others.hear)
	third.OnChange(more.hear)
	changes := []limiter.Change{
		{Action: limiter.ActionReset, Key: limiter.KeyOf("a"), Limits: []string{"sms.phone:1m", "sms.phone:1h"}},
		{Action: limiter.ActionBan, Key: limiter.KeyOf("a"), Limits: []string{"sms.phone:1m"}, Ban: time.Hour},
		{Action: limiter.ActionGrant, Key: limiter.KeyOf("b"), Limits: []string{"sms.phone:1m"}, Grant: 3},
	}
	for _, c := range changes {
		s.check(near.Announce(t.Context(), c))
	}
	s.until("all is heard of", func() bool { return others.is(changes...) && more.is(changes...) })
	if !own.is() {
		t.Errorf("%v: a process hears of its own changes", own.all)
	}
	if far.Remembered() != 0 || !far.Hears() {
		t.Error("a change makes the listener forget what it hears")
	}
	s.client.Publish(t.Context(), redisstore.DefaultPrefix+":freed", "change:{nonsense")
	s.client.Publish(t.Context(), redisstore.DefaultPrefix+":freed", `change:{"verb":"reset","key":"short"}`)
	s.check(near.Announce(t.Context(), changes[0]))
	s.until("what comes after nonsense is heard of", func() bool { return others.is(append(changes, changes[0])...) })
}

// Processes with another database of the same Redis, whose channels are those of all, have nothing to do with a change.
func TestChanges_AreOfOneDatabase(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	on := func(db int) *redisstore.Store {
		s := &testStore{t: t, client: clientOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}, DB: db})}
		return s.hearing()
	}
	other, near, far := on(0), on(1), on(1)
	var heard heardBy
	far.OnChange(heard.hear)
	ban := limiter.Change{Action: limiter.ActionBan, Key: limiter.KeyOf("a"), Limits: []string{"a.b:1m"}, Ban: time.Hour}
	unban := limiter.Change{Action: limiter.ActionReset, Key: limiter.KeyOf("a"), Limits: []string{"a.b:1m"}}
	for _, err := range []error{other.Announce(t.Context(), ban), near.Announce(t.Context(), unban)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "something is heard of", func() bool { return !heard.is() })
	if !heard.is(unban) {
		t.Errorf("heard of %v; want %v", heard.all, unban)
	}
}

// In a cluster too, whichever node a process listens to.
func TestChanges_InACluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, redistest.StartMasters(t, 3))
	s := &testStore{t: t, client: client}
	near, far := s.hearing(), s.hearing()
	var others heardBy
	far.OnChange(others.hear)
	c := limiter.Change{Action: limiter.ActionBan, Key: limiter.KeyOf("a"), Limits: []string{"a.b:1m"}}
	s.check(near.Announce(t.Context(), c))
	s.until("the change is heard of", func() bool { return others.is(c) })
}

// A reset forgets what was granted in place of Redis as well, wherever that was: it is
// not reported any more.
func TestChanges_ResetForgetsWhatIsToBeReported(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA} {
		c := claim(10, time.Hour, 1)
		c[0].Limit.Algorithm = a
		near, far, other := slices.Clone(c), slices.Clone(c), slices.Clone(c)
		far[0].Key, other[0].Key = limiter.KeyOf("far"), limiter.KeyOf("other")
		s.server.Signal(syscall.SIGSTOP)                        // so that nothing is reported yet
		for _, c := range [][]limiter.Claim{other, near, far} { // the first may be on its way at once
			s.reported(c, 7)
		}
		reset := fmt.Sprintf(`change:{"from":"x","verb":"reset","key":"%s","limits":["%s"]}`, far[0].Key, far[0].Limit.Name)
		if !s.store.HearMessage(reset) || s.store.Unreported() != 2 {
			t.Errorf("%s: %d windows to report after a reset elsewhere, want 2", a, s.store.Unreported())
		}
		s.server.Signal(syscall.SIGCONT)
		s.check(s.store.Reset(t.Context(), near))
		s.quiet()
		s.left(near, 10)
		s.left(far, 10)
		s.left(other, 3)
	}
}

// What is on its way to Redis comes there before the reset, and what is taken afterwards counts.
func TestChanges_ResetForgetsWhatIsBeingReported(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for range rounds.Of(10) {
		for _, a := range append(algorithms()[:4], limiter.SlidingLog) {
			c := claim(10, time.Hour, 7)
			c[0].Limit.Algorithm = a
			s.server.Signal(syscall.SIGSTOP)
			done := make(chan error, 2)
			go func() { done <- s.store.TellAged(t.Context(), c, limiter.Permit{ID: [16]byte{9}, At: time.Now()}, 0) }()
			s.until("it is being sent", func() bool { return s.store.BeingSent(&c[0]) })
			go func() { done <- s.store.Reset(t.Context(), c) }()
			s.server.Signal(syscall.SIGCONT)
			s.check(errors.Join(<-done, <-done))
			s.left(c, 10)
		}
	}
}

func TestChanges_WithoutRedis(t *testing.T) {
	s := newOwnTestStore(t)
	s.server.Kill()
	if err := s.store.Announce(t.Context(), limiter.Change{Action: limiter.ActionReset}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
}

// A process that could not connect at first hears like any other: then the client subscribes by itself, to its channels in any
// order.
func TestChanges_AreHeardAfterAFailedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range rounds.Of(6) {
		var dials atomic.Int64
		client := redis.NewClient(&redis.Options{Addr: server.Addr, DialerRetries: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				return nil, syscall.ECONNREFUSED
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
		store := redisstore.New(client, redisstore.Options{Timeout: patient})
		eventually(t, "the store hears", store.Hears)
		store.Close()
		client.Close()
	}
}

// Through sentinels too: what was changed holds on the replica that becomes master, and
// changes are heard of there again.
func TestChanges_AfterAFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	dial := func() *redisstore.Store {
		c := redisstore.ClientConfig{Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: time.Second, BreakRest: 100 * time.Millisecond}
		return storeOn(t, clientOf(t, c), redisstore.Options{Timeout: time.Second})
	}
	s := &testStore{t: t}
	near, far := dial(), dial()
	s.until("both hear", func() bool { return near.Hears() && far.Hears() })
	var others heardBy
	far.OnChange(others.hear)
	c := claim(5, time.Hour, 1)
	ban := limiter.Change{Action: limiter.ActionBan, Key: c[0].Key, Limits: []string{c[0].Limit.Name}, Ban: time.Hour}
	s.check(errors.Join(ban.Apply(t.Context(), near, c), near.Announce(t.Context(), ban)))
	s.until("the ban is heard of", func() bool { return others.is(ban) })
	s.client = connect(t, servers.Master.Addr)
	if n := s.do("wait", 1, 5000); n != int64(1) {
		t.Fatalf("%v replicas know of the ban", n)
	}
	servers.Master.Kill()
	eventually(t, "the ban holds on the new master", func() bool {
		in, err := far.Inspect(t.Context(), c)
		return err == nil && in.Statuses[0].BannedFor > 59*time.Minute
	})
	unban := ban
	unban.Ban = 0
	var last strings.Builder
	await.Until(t, "the end of the ban is heard of", func() bool {
		last.Reset()
		err := errors.Join(unban.Apply(t.Context(), near, c), near.Announce(t.Context(), unban))
		fmt.Fprintln(&last, "announced:", err, "subscribed:", far.Hears())
		return err == nil && !others.is(ban)
	}, &last)
	var d limiter.Decision
	if err := far.Take(t.Context(), c, &d); err != nil || !d.Allowed {
		t.Errorf("%+v, %v; want it to pass", d, err)
	}
}

// eventually waits for what takes a failover.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}
