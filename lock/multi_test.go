package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
)

func TestMulti_TakesAllOrNone(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker()
	b := locked(t, other.Reentrant("b"))
	m := Multi(l.Reentrant("c"), l.Fair("a"), l.Reentrant("b"))
	refused(t, m)
	if keys := w.eye.Keys(ctxOf(t), "*").Val(); len(keys) != 1 || keys[0] != "b" {
		t.Errorf("after a refusal there are %q, want b alone", keys)
	}
	got := beside(func() (*Hold, error) { return m.Lock(ctxOf(t)) })
	await.Until(t, "it waits for b", func() bool { return w.listeners("redisson_lock__channel:{b}") == 1 })
	unlocked(t, b)
	h := got(t)
	if keys := w.eye.Keys(ctxOf(t), "*").Val(); len(keys) != 3 {
		t.Errorf("keys = %v, want a, b and c", keys)
	}
	for _, name := range []string{"a", "b", "c"} {
		refused(t, other.Reentrant(name))
	}
	unlocked(t, h)
	w.empty()
}

func TestMulti_OfTwoInOppositeOrderDoesNotDeadlock(t *testing.T) {
	w := newTestServer(t)
	one, two := w.locker(), w.locker()
	ways := []*Lock{Multi(one.Reentrant("a"), one.Reentrant("b")), Multi(two.Reentrant("b"), two.Reentrant("a"))}
	var done []chan error
	for _, m := range ways {
		done = append(done, started(func() error {
			for range 25 {
				if err := Do(ctxOf(t), m, func(context.Context) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, d := range done {
		if err := <-d; err != nil {
			t.Error(err)
		}
	}
	w.empty()
}

// What is left is free at once, not when its lease is over.
func TestMulti_IsLostWithAnyPart(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithWatchdog(time.Hour))
	for _, lk := range []*Lock{Multi(l.Reentrant("a"), l.Reentrant("b")), Multi(l.Fair("a"), l.Reentrant("b")), l.Group("a", "b", "c")} {
		h := locked(t, lk)
		w.eye.Del(ctxOf(t), "b")
		w.eye.HDel(ctxOf(t), "a", fieldOf("b"))
		wantErr(t, h.Extend(ctxOf(t), 2*time.Hour), ErrLost)
		ended(t, h)
		wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
		w.empty()
	}
}

// What is lost with the parts that answer is lost, whatever one that is away would say.
func TestMulti_IsLostBesideAPartThatIsAway(t *testing.T) {
	for name, combine := range map[string]func(...*Lock) *Lock{"multi": Multi, "redlock": Redlock} {
		for what, ask := range map[string]func(h *Hold) error{
			"extend": func(h *Hold) error { return h.Extend(ctxOf(t), 2*time.Hour) },
			"unlock": func(h *Hold) error { return h.Unlock(ctxOf(t)) },
		} {
			worlds, _, _ := three(t)
			var parts []*Lock
			for _, w := range worlds {
				parts = append(parts, w.locker(WithWatchdog(time.Hour)).Reentrant("a"))
			}
			h := locked(t, combine(parts...))
			worlds[0].eye.Del(ctxOf(t), "a")
			worlds[1].eye.Del(ctxOf(t), "a")
			worlds[2].server.Kill()
			if err := ask(h); !errors.Is(err, ErrLost) {
				t.Errorf("%s, %s: %v; want ErrLost", name, what, err)
			}
		}
	}
}

func TestMulti_BadPartsAreNamed(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for _, m := range []*Lock{Multi(), Redlock(), Multi(l.Reentrant("a"), l.Reentrant("")), Multi(l.Reentrant("a"), l.Reentrant("a"))} {
		_, err := m.Lock(ctxOf(t))
		wantErr(t, err, ErrInvalidName)
	}
	w.empty()
}

// three makes three worlds that know nothing of each other, a lock of one
// process over them, and one of another process.
func three(t *testing.T, settings ...LockerOption) (worlds []*testServer, lock, other *Lock) {
	t.Helper()
	leakFree(t)
	var locks, others []*Lock
	for range 3 {
		w := newServer(t)
		worlds = append(worlds, w)
		locks = append(locks, w.locker(settings...).Reentrant("a"))
		others = append(others, w.locker(settings...).Reentrant("a"))
	}
	return worlds, Redlock(locks...), Redlock(others...)
}

func TestRed_SurvivesAMinorityAndExcludes(t *testing.T) {
	worlds, lock, other := three(t, WithCallTimeout(time.Second))
	h := locked(t, lock)
	refused(t, other)
	unlocked(t, h)
	worlds[0].server.Kill()
	h = locked(t, lock)
	refused(t, other)
	for _, w := range worlds[1:] {
		if m := w.hash("a"); len(m) != 1 || m[h.Owner().String()] != "1" {
			t.Errorf("hash = %v, want only the holder %s", m, h.Owner())
		}
	}
	unlocked(t, h)
	for _, w := range worlds[1:] {
		w.empty()
	}
	unlocked(t, locked(t, other))
}

func TestRed_WithoutAMajorityLeavesNothing(t *testing.T) {
	worlds, lock, other := three(t, WithCallTimeout(time.Second), WithPollInterval(50*time.Millisecond))
	worlds[0].server.Kill()
	worlds[1].server.Kill()
	_, err := lock.TryLock(ctxOf(t))
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("TryLock = %v, want the errors of the dead servers", err)
	}
	worlds[2].empty()
	worlds[0].server.Restart()
	unlocked(t, locked(t, other))
	worlds[2].empty()
}

func TestRed_IsLostWithoutAMajority(t *testing.T) {
	worlds, lock, _ := three(t, WithWatchdog(renewedLease), WithCallTimeout(time.Second))
	h := locked(t, lock)
	worlds[1].eye.Del(ctxOf(t), "a")
	worlds[2].eye.Del(ctxOf(t), "a")
	ended(t, h)
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	worlds[0].empty()
}

func TestFenced_TokensRise(t *testing.T) {
	w := newTestServer(t)
	var last int64
	for i := range 10 {
		h := locked(t, w.locker().Fenced("a"))
		if h.Token() <= last {
			t.Fatalf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		if i%3 == 0 {
			w.eye.Del(ctxOf(t), "redisson_lock_token:{a}") // lost in a failover
		}
		if i%2 == 0 {
			w.eye.Del(ctxOf(t), "a") // lost
			wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
			continue
		}
		unlocked(t, h)
	}
}

func TestFenced_ALostReplyDoesNotSkipTheHold(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	lk := l.Fenced("a")
	c := callParams{owner: l.NewOwner(), count: 1, lease: time.Second}
	first, err := lk.kind.attempt(ctxOf(t), c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := lk.kind.attempt(ctxOf(t), c)
	if err != nil || !again.held || again.token != first.token {
		t.Errorf("the same attempt again = %+v, %v; want the token %d", again, err, first.token)
	}
}

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

// Names that begin like what tells kinds apart are names like others: of locks that have nothing in common, none
// waits for another, and one owner may hold all.
func TestNames_OfOtherKindsAreApart(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	fields := fieldOf("v") + " "
	for name, pair := range map[string][2]*Lock{
		"read":  {l.Reentrant("read x"), l.ReadWrite("x").Read()},
		"write": {l.Reentrant("write x"), l.ReadWrite("x").Write()},
		"group": {l.Reentrant("group " + fields + "x"), l.Group("x", "v")},
		"multi": {l.Reentrant("1:x,1:y"), Multi(l.Reentrant("x"), l.Reentrant("y"))},
	} {
		for _, options := range [][]LockOption{nil, {WithOwner(l.NewOwner())}} {
			first := locked(t, pair[0], options...)
			second, err := pair[1].Lock(within(t, 10*time.Second), options...)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else {
				unlocked(t, second)
			}
			unlocked(t, first)
		}
	}
	w.empty()
}

// An owner counts its holds of a thing, not for which of its locks they are.
func TestEntangled_IsRefusedUntilTheOtherIsUnlocked(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for name, pair := range map[string][2]*Lock{
		"groups":                {l.Group("orders", "a", "b"), l.Group("orders", "b")},
		"a group and a Multi":   {l.Group("orders", "a"), Multi(l.Group("orders", "a", "c"), l.Reentrant("x"))},
		"a Multi and a part":    {Multi(l.Reentrant("x"), l.Reentrant("y")), l.Reentrant("y")},
		"a writer and a Multi":  {l.ReadWrite("x").Write(), Multi(l.ReadWrite("x").Write(), l.Reentrant("y"))},
		"a Red and one of many": {Redlock(l.Reentrant("x"), l.Reentrant("y")), Multi(l.Fair("y"), l.Reentrant("z"))},
	} {
		for range 2 {
			h := locked(t, pair[0])
			if _, err := pair[1].Lock(ctxOf(t), WithOwner(h.Owner())); !errors.Is(err, ErrNotReentrant) {
				t.Errorf("%s: Lock = %v, want ErrNotReentrant", name, err)
			}
			unlocked(t, h)
			unlocked(t, locked(t, pair[1], WithOwner(h.Owner())))
			pair[0], pair[1] = pair[1], pair[0]
		}
	}
	h := locked(t, l.Group("orders", "a"))
	next := locked(t, l.Group("orders", "b"), WithOwner(h.Owner()))
	third := locked(t, l.Group("invoices", "a"), WithOwner(h.Owner()))
	for _, h := range []*Hold{h, next, third} {
		unlocked(t, h)
	}
	w.empty()
}
