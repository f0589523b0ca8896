package lock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// hub makes a hub of one connection to addr.
func (t *testServer) hub(addr string, heartbeat time.Duration) *hub {
	t.t.Helper()
	rdb := t.dial(addr)
	h := newHub(func(context.Context, string) (route, error) {
		return route{open: func(ctx context.Context) *redis.PubSub { return rdb.Subscribe(ctx) }}, nil
	})
	h.heartbeat = heartbeat
	t.t.Cleanup(h.close)
	return h
}

func (t *testServer) listen(h *hub, channel string) *subscription {
	t.t.Helper()
	sub, err := h.subscribe(ctxOf(t.t), channel)
	if err != nil {
		t.t.Fatal(err)
	}
	return sub
}

// heard waits for something from c.
func (t *testServer) heard(c <-chan struct{}) {
	t.t.Helper()
	ctx := ctxOf(t.t)
	select {
	case <-c:
	case <-ctx.Done():
		t.t.Error("nothing is heard")
	}
}

// connections is how many clients the server has.
func (t *testServer) connections() int {
	t.t.Helper()
	list, err := t.eye.ClientList(ctxOf(t.t)).Result()
	if err != nil {
		t.t.Fatal(err)
	}
	return strings.Count(list, "\n")
}

func TestHub_SharesChannelsAndConnections(t *testing.T) {
	w := newTestServer(t)
	h := w.hub(w.server.Addr, heartbeat)
	before := w.connections()
	one, two, other := w.listen(h, "a"), w.listen(h, "a"), w.listen(h, "b")
	for _, s := range []*subscription{one, two, other} {
		w.heard(s.ready())
	}
	if got := w.listeners("a"); got != 1 {
		t.Errorf("%d listen to a, want 1", got)
	}
	if got := w.connections() - before; got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
	one.drain()
	two.drain()
	other.drain()
	w.eye.Publish(ctxOf(t), "a", "0")
	w.heard(one.notify)
	w.heard(two.notify)
	select {
	case <-other.notify:
		t.Error("a message to a woke who listens to b")
	default:
	}
	one.close()
	w.eye.Publish(ctxOf(t), "a", "0")
	w.heard(two.notify)
	two.close()
	w.silent("a")
	other.close()
	w.silent("b")
}

func TestHub_ReadyMeansThatTheServerHasConfirmed(t *testing.T) {
	w := newTestServer(t)
	h := w.hub(w.server.Addr, heartbeat)
	for n := range 200 { // as fast as possible: the same channel comes and goes
		s := w.listen(h, "a")
		w.heard(s.ready())
		if n%2 == 0 {
			if got := w.listeners("a"); got != 1 {
				t.Fatalf("ready, and %d listen", got)
			}
		}
		s.close()
	}
	w.silent("a")
}

func TestHub_ManyComeAndGo(t *testing.T) {
	w := newTestServer(t)
	h := w.hub(w.server.Addr, heartbeat)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				s := w.listen(h, fmt.Sprint("c", rand.N(5)))
				if rand.N(2) == 0 {
					w.heard(s.ready())
				}
				s.close()
			}
		})
	}
	all.Wait()
	for n := range 5 {
		w.silent(fmt.Sprint("c", n))
	}
}

func TestHub_AnIdleConnectionIsClosed(t *testing.T) {
	w := newTestServer(t)
	h := w.hub(w.server.Addr, 20*time.Millisecond)
	before := w.connections()
	for range 3 {
		s := w.listen(h, "a")
		w.heard(s.ready())
		s.close()
		await.Until(t, "no connection is left", func() bool { return w.connections() == before })
	}
}

func TestHub_AConnectionThatFallsSilentIsReplaced(t *testing.T) {
	w := newTestServer(t)
	p := redistest.NewFaultProxy(t, w.server.Addr)
	h := w.hub(p.Addr, 30*time.Millisecond)
	s := w.listen(h, "a")
	w.heard(s.ready())
	first := s.ready()
	p.Hold() // the peer is there, and says nothing more
	await.Until(t, "the connection is given up", func() bool { return s.ready() != first })
	p.Release()
	await.Until(t, "another is there", func() bool {
		select {
		case <-s.ready():
			return true
		default:
			return false
		}
	})
	s.drain()
	w.eye.Publish(ctxOf(t), "a", "0")
	w.heard(s.notify)
	s.close()
}

func TestHub_AQuietConnectionThatAnswersIsKept(t *testing.T) {
	w := newTestServer(t)
	const beat = 500 * time.Millisecond // in which a busy machine answers
	h := w.hub(w.server.Addr, beat)
	s := w.listen(h, "a")
	w.heard(s.ready())
	connection := func() string {
		id, _, _ := strings.Cut(w.eye.Do(ctxOf(t), "client", "list", "type", "pubsub").Val().(string), " ")
		return id
	}
	first, end := connection(), time.Now().Add(4*beat)
	await.Until(t, "it would have been given up", func() bool { return time.Now().After(end) })
	if now := connection(); now != first {
		t.Fatalf("connection %s became %s", first, now)
	}
	s.close()
}

func TestHub_KilledConnectionsWakeTheirListeners(t *testing.T) {
	w := newTestServer(t)
	h := w.hub(w.server.Addr, heartbeat)
	s := w.listen(h, "a")
	w.heard(s.ready())
	s.drain()
	w.eye.Do(ctxOf(t), "client", "kill", "type", "pubsub")
	w.heard(s.notify) // messages may have been missed meanwhile
	w.heard(s.ready())
	w.eye.Publish(ctxOf(t), "a", "0")
	w.heard(s.notify)
	s.close()
}

// A channel that was given up and wanted again is not heard before the server
// has confirmed the last of the commands.
func TestLine_OnlyTheLastConfirmationCounts(t *testing.T) {
	h := newHub(nil)
	ln := newSubscriber(h, route{})
	defer ln.cancel()
	tp := &topic{subscribers: make(map[*subscription]struct{}), ready: make(chan struct{})}
	ln.topics["a"] = tp
	sub := &subscription{notify: make(chan struct{}, 1), subscriber: ln, topic: tp}
	sent := func(join, leave int) {
		t.Helper()
		j, l := ln.pendingChanges()
		if len(j) != join || len(l) != leave {
			t.Fatalf("sent %d SUBSCRIBE and %d UNSUBSCRIBE, want %d and %d", len(j), len(l), join, leave)
		}
	}
	ready := func(kind string) bool {
		t.Helper()
		if !ln.handle(&redis.Subscription{Kind: kind, Channel: "a"}) {
			t.Fatalf("the %s was not expected", kind)
		}
		select {
		case <-sub.ready():
			return true
		default:
			return false
		}
	}
	tp.subscribers[sub] = struct{}{}
	sent(1, 0)
	sub.close()
	sent(0, 1)
	tp.subscribers[sub] = struct{}{}
	sent(1, 0)
	for i, kind := range []string{"subscribe", "unsubscribe", "subscribe"} {
		if got := ready(kind); got != (i == 2) {
			t.Fatalf("ready is %v at confirmation %d, the %s", got, i, kind)
		}
	}
	if ln.handle(&redis.Subscription{Kind: "unsubscribe", Channel: "a"}) {
		t.Error("the server took the channel away, and nobody minds")
	}
}

// A hook answers PUBSUB in place of a server.
type hook struct{ answer error }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return h.answer }
}

// A refusal is an error that a server replies with.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// Only a server that knows no sharded channels, or forbids to ask for them, makes a process publish on others for good.
func TestPublishCommand_OfAServerThatIsBusy(t *testing.T) {
	for first, want := range map[error]string{
		refusal("BUSY Redis is busy running a script."): "SPUBLISH",
		refusal("LOADING Redis is loading the dataset"): "SPUBLISH",
		refusal("ERR max number of clients reached"):    "SPUBLISH",
		io.EOF: "SPUBLISH",
		refusal("ERR unknown subcommand 'SHARDNUMSUB'."):         "PUBLISH",
		refusal("ERR Unknown PUBSUB subcommand or wrong number"): "PUBLISH",
		refusal("NOPERM this user has no permissions"):           "PUBLISH",
	} {
		rdb, said := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), &hook{first}
		rdb.AddHook(said)
		l := New(rdb)
		_, err := l.publishCommand(ctxOf(t))
		said.answer = nil
		if verb, _ := l.publishCommand(ctxOf(t)); verb != want || (err == nil) != (want == "PUBLISH") {
			t.Errorf("after %v: %s, and at first %v; want %s", first, verb, err, want)
		}
		l.Close()
		rdb.Close()
	}
}
