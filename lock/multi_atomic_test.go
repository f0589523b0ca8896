package lock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
)

func TestJoint_TakesAllOrNoneInOneCall(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(WithPollInterval(time.Hour)), w.locker()
	m := Multi(l.Reentrant("c"), l.Reentrant("a"), l.Reentrant("b"))
	unlocked(t, locked(t, m)) // the server knows the scripts now
	b := locked(t, other.Reentrant("b"))
	before := w.calls()
	refused(t, m)
	if n := w.calls() - before; n != 1 {
		t.Errorf("a refusal took %d calls, want 1", n)
	}
	if keys := w.eye.Keys(ctxOf(t), "*").Val(); len(keys) != 1 || keys[0] != "b" {
		t.Errorf("after a refusal there are %q, want b alone", keys)
	}
	got := beside(func() (*Hold, error) { return m.Lock(ctxOf(t)) })
	await.Until(t, "it waits for b", func() bool { return w.listeners("redisson_lock__channel:{b}") == 1 })
	unlocked(t, b)
	h := got(t)
	before = w.calls()
	second := again(t, h)
	for _, name := range []string{"a", "b", "c"} {
		if m := w.hash(name); m[h.Owner().String()] != "2" {
			t.Errorf("%s has %v, want two holds of %s", name, m, h.Owner())
		}
	}
	unlocked(t, second)
	unlocked(t, h)
	if n := w.calls() - before; n != 3 {
		t.Errorf("entering again and leaving twice took %d calls, want 3", n)
	}
	w.empty()
}

// Who waits for one of the parts hears of their common end.
func TestJoint_TellsEveryPartsWaiters(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker(WithPollInterval(time.Hour))
	h := locked(t, Multi(l.Reentrant("a"), l.Reentrant("b")))
	var got []func(*testing.T) *Hold
	for _, name := range []string{"a", "b"} {
		got = append(got, beside(func() (*Hold, error) { return other.Reentrant(name).Lock(ctxOf(t)) }))
		await.Until(t, "one waits for "+name, func() bool { return w.listeners("redisson_lock__channel:{"+name+"}") == 1 })
	}
	unlocked(t, h)
	for _, g := range got {
		unlocked(t, g(t))
	}
	w.empty()
}

func TestJoint_KeepsAndLosesAllParts(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithWatchdog(renewedLease))
	h := locked(t, Multi(l.Reentrant("a"), l.Reentrant("b")))
	first := h.Deadline()
	await.Until(t, "it was renewed", func() bool { return h.Deadline().After(first) })
	w.eye.Del(ctxOf(t), "a")
	ended(t, h)
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	w.empty()
}

func TestJoint_NeedsOnePlace(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{w.server.Addr}})
	defer rdb.Close()
	c := New(rdb)
	defer c.Close()
	for _, tc := range []struct {
		what  string
		locks []*Lock
		joint bool
	}{
		{"reentrant locks", []*Lock{l.Reentrant("a"), l.Reentrant("b")}, true},
		{"another kind", []*Lock{l.Reentrant("a"), l.Fair("b")}, false},
		{"another Locker", []*Lock{l.Reentrant("a"), w.locker().Reentrant("b")}, false},
		{"a cluster", []*Lock{c.Reentrant("a"), c.Reentrant("b")}, false},
		{"a cluster and one tag", []*Lock{c.Reentrant("{x}a"), c.Reentrant("b{x}")}, true},
		{"a cluster and two tags", []*Lock{c.Reentrant("{x}a"), c.Reentrant("{y}b")}, false},
	} {
		if _, joint := Multi(tc.locks...).kind.(*scripted); joint != tc.joint {
			t.Errorf("%s: joint %v, want %v", tc.what, joint, tc.joint)
		}
	}
}
