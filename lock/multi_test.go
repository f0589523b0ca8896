package lock

import (
	"context"
	"strings"
	"testing"
	"time"

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
	worlds, lock, _ := three(t, WithWatchdog(renewedLease), WithCallTimeout(renewedLease/4))
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
