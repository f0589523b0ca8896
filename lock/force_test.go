package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// revocableKinds are all kinds that can be looked at and taken away.
func revocableKinds() map[string]func(*Locker) *Lock {
	return map[string]func(*Locker) *Lock{
		"reentrant": func(l *Locker) *Lock { return l.Reentrant("orders") },
		"fair":      func(l *Locker) *Lock { return l.Fair("orders") },
		"fenced":    func(l *Locker) *Lock { return l.Fenced("orders") },
		"simple":    func(l *Locker) *Lock { return l.Simple("orders") },
		"group":     func(l *Locker) *Lock { return l.Group("orders", "one", "two") },
		"read":      func(l *Locker) *Lock { return l.ReadWrite("orders").Read() },
		"write":     func(l *Locker) *Lock { return l.ReadWrite("orders").Write() },
	}
}

func wantHeld(t *testing.T, lk *Lock) {
	t.Helper()
	if got, err := lk.Locked(ctxOf(t)); err != nil || !got {
		t.Errorf("Locked = %v, %v; want it held", got, err)
	}
}

func wantFree(t *testing.T, lk *Lock) {
	t.Helper()
	if got, err := lk.Locked(ctxOf(t)); err != nil || got {
		t.Errorf("Locked = %v, %v; want it free", got, err)
	}
}

func TestForce_LooksAndTakesAway(t *testing.T) {
	t.Parallel()
	leakFree(t)
	for name, kind := range revocableKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for its watchdog
			w := newServer(t)
			mine, other := kind(w.locker(WithWatchdog(3*time.Second))), kind(w.locker(WithPollInterval(time.Hour)))
			wantFree(t, other)
			if left, err := other.RemainingLease(ctxOf(t)); err != nil || left != 0 {
				t.Errorf("Remaining of a free lock = %v, %v", left, err)
			}
			if was, err := other.ForceUnlock(ctxOf(t)); err != nil || was {
				t.Errorf("ForceUnlock of a free lock = %v, %v", was, err)
			}
			h := locked(t, mine)
			wantHeld(t, other)
			if left, err := other.RemainingLease(ctxOf(t)); err != nil || left <= 0 || left > 3*time.Second {
				t.Errorf("Remaining = %v, %v; want up to 3 s", left, err)
			}
			if was, err := other.ForceUnlock(ctxOf(t)); err != nil || !was {
				t.Errorf("ForceUnlock = %v, %v; want it taken away", was, err)
			}
			wantFree(t, other)
			ended(t, h)
			if err := context.Cause(h.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("the hold ended with %v, want ErrLost", err)
			}
			wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
			unlocked(t, locked(t, other))
		})
	}
}

// Who waits in another process hears of it: he does not ask for an hour.
func TestForce_WakesWhoWaits(t *testing.T) {
	for name, kind := range revocableKinds() {
		if name == "read" {
			continue // nobody waits for readers but a writer, below
		}
		t.Run(name, func(t *testing.T) {
			w := newTestServer(t)
			locked(t, kind(w.locker()))
			got := beside(func() (*Hold, error) { return kind(w.locker(WithPollInterval(time.Hour))).Lock(ctxOf(t)) })
			await.Until(t, "somebody listens", func() bool { return len(w.eye.PubSubChannels(ctxOf(t), "*").Val()) == 1 })
			if was, err := kind(w.locker()).ForceUnlock(ctxOf(t)); err != nil || !was {
				t.Errorf("ForceUnlock = %v, %v", was, err)
			}
			unlocked(t, got(t))
		})
	}
	t.Run("a writer behind readers", func(t *testing.T) {
		w := newTestServer(t)
		r := locked(t, w.locker().ReadWrite("orders").Read())
		again(t, r)
		locked(t, w.locker().ReadWrite("orders").Read())
		rw := w.locker(WithPollInterval(time.Hour)).ReadWrite("orders")
		got := beside(func() (*Hold, error) { return rw.Write().Lock(ctxOf(t)) })
		await.Until(t, "the writer listens", func() bool { return w.listeners("redisson_rwlock:{orders}") == 1 })
		wantFree(t, rw.Write())
		if was, err := rw.Write().ForceUnlock(ctxOf(t)); err != nil || was {
			t.Errorf("ForceUnlock of a writer while others read = %v, %v", was, err)
		}
		if was, err := rw.Read().ForceUnlock(ctxOf(t)); err != nil || !was {
			t.Errorf("ForceUnlock of the readers = %v, %v", was, err)
		}
		h := got(t)
		if keys := w.eye.Keys(ctxOf(t), "*").Val(); len(keys) != 1 {
			t.Errorf("there are %q, want the writer's alone", keys)
		}
		unlocked(t, h)
	})
}

func TestForce_KnowsLocksWithoutEndAndBundles(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	w.eye.HSet(ctxOf(t), "orders", "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57", 1)
	if left, err := l.Reentrant("orders").RemainingLease(ctxOf(t)); err != nil || left != math.MaxInt64 {
		t.Errorf("Remaining of a lock without end = %v, %v", left, err)
	}
	for _, lk := range []*Lock{Multi(l.Reentrant("a"), l.Reentrant("b")), Redlock(l.Reentrant("a"), l.Reentrant("b"))} {
		_, err := lk.ForceUnlock(ctxOf(t))
		wantErr(t, err, errors.ErrUnsupported)
		_, err = lk.Locked(ctxOf(t))
		wantErr(t, err, errors.ErrUnsupported)
	}
	_, err := l.Reentrant("").RemainingLease(ctxOf(t))
	wantErr(t, err, ErrInvalidName)
	w.server.Kill()
	if _, err := l.Reentrant("orders").Locked(ctxOf(t)); err == nil {
		t.Error("Locked without a server is no error")
	}
	l.Close()
	_, err = l.Reentrant("orders").Locked(ctxOf(t))
	wantErr(t, err, ErrClosed)
}

// Redisson's own doing, but that its readers' holds stay behind.
func TestGolden_Force(t *testing.T) {
	for name, kind := range revocableKinds() {
		if name == "simple" || name == "fenced" || name == "group" { // ours alone; as reentrant; a story of its own
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newRecording(t)
			l := s.locker()
			s.calls(locked(t, kind(l)))
			if name == "fair" { // it tells the first who waits
				l := s.locker()
				s.Call(l.id+":1", "B")
				got := beside(func() (*Hold, error) { return kind(l).Lock(ctxOf(t)) })
				await.Until(t, "he listens", func() bool { return len(s.eye.PubSubChannels(ctxOf(t), "redisson_*").Val()) == 1 })
				defer func() { unlocked(t, got(t)) }()
			}
			if was, err := kind(s.locker()).ForceUnlock(ctxOf(t)); err != nil || !was {
				t.Fatalf("ForceUnlock = %v, %v", was, err)
			}
			s.Published("told by force")
			if name == "write" {
				s.Pass("0") // for a waiter of Redisson's that "1" has missed
			}
			if name == "fair" {
				await.Until(t, "the next one has it", func() bool { return s.eye.Exists(ctxOf(t), "redisson_lock_queue:{orders}").Val() == 0 })
			}
			if name == "read" {
				s.eye.Set(ctxOf(t), "{orders}:A:rwlock_timeout:1", "1", time.Minute)
			}
			s.keys("taken away")
			s.end("force_" + name)
		})
	}
}

// A holder who would renew in ten seconds only hears at once that the lock was taken
// away, by us or as Redisson does it. A message that says nothing of the kind does
// no harm.
func TestForceListener_HearsThatTheLockWasTakenAway(t *testing.T) {
	t.Parallel()
	leakFree(t)
	type taker = func(t *testing.T, w *testServer, lk *Lock) error
	force := func(t *testing.T, _ *testServer, lk *Lock) error { _, err := lk.ForceUnlock(ctxOf(t)); return err }
	javas := func(channel, message string) taker {
		return func(t *testing.T, w *testServer, _ *Lock) error {
			w.eye.Del(ctxOf(t), "orders")
			return w.eye.Publish(ctxOf(t), channel, message).Err()
		}
	}
	for name, c := range map[string]struct {
		channel string
		takers  []taker
	}{
		"reentrant": {"redisson_lock__channel:{orders}", []taker{force, javas("redisson_lock__channel:{orders}", "0")}},
		"fenced":    {"redisson_lock__channel:{orders}", []taker{force}},
		"simple":    {"weir_simple:{orders}", []taker{force}},
		"read":      {"redisson_rwlock:{orders}", []taker{force, javas("redisson_rwlock:{orders}", "0")}},
		"write":     {"redisson_rwlock:{orders}", []taker{force, javas("redisson_rwlock:{orders}", "1")}},
	} {
		for i, take := range c.takers {
			for _, options := range [][]LockOption{nil, {WithLease(time.Minute)}} {
				t.Run(fmt.Sprint(name, i, len(options)), func(t *testing.T) {
					t.Parallel() // each waits until the holder listens
					takenAway(t, takeover{name, c.channel, take, options})
				})
			}
		}
	}
}

// A takeover is how a lock of one kind is held, and then taken away.
type takeover struct {
	kind, channel string
	take          func(*testing.T, *testServer, *Lock) error
	options       []LockOption
}

// takenAway checks that the holder of a lock hears at once that it was taken away.
func takenAway(t *testing.T, c takeover) {
	w := newServer(t)
	kind := revocableKinds()[c.kind]
	h := locked(t, kind(w.locker()), c.options...)
	await.Until(t, "the holder listens", func() bool { return w.listeners(c.channel) == 1 })
	w.eye.Publish(ctxOf(t), c.channel, "0")
	before := w.eye.PTTL(ctxOf(t), "orders").Val()
	if err := h.Context().Err(); err != nil {
		t.Fatalf("ended by a message: %v", err)
	}
	start := time.Now()
	wantErr(t, c.take(t, w, kind(w.locker())), nil)
	<-h.Context().Done()
	if err := context.Cause(h.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("ended with %v, want ErrLost", err)
	}
	if took := time.Since(start); took >= DefaultLease/3 { // when it would have been noticed without listening
		t.Errorf("noticed after %v", took)
	}
	if before <= 0 {
		t.Errorf("it lived for %v", before)
	}
	await.Until(t, "nobody listens", func() bool { return w.listeners(c.channel) == 0 })
}

// A holder hears at once that a Redis has come back empty, also if the first call to it fails.
func TestForceListener_HearsThatRedisCameBackEmpty(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind()
	h := locked(t, l.Reentrant("orders"))
	await.Until(t, "the holder listens", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 1 })
	w.eye.FlushAll(ctxOf(t))
	p.Lose("evalsha")
	start := time.Now()
	p.Cut()
	<-h.Context().Done()
	if took := time.Since(start); p.Lost() != 1 || took >= DefaultLease/6 {
		t.Errorf("noticed after %v, %d replies lost", took, p.Lost())
	}
}

// The holder's own ear is nobody who waits, and looking makes no lease longer.
func TestForceListener_IsNobodyWhoWaits(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Reentrant("orders"), WithLease(10*time.Second))
	await.Until(t, "the holder listens", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 1 })
	if ttl := w.eye.PTTL(ctxOf(t), "orders").Val(); ttl > 9*time.Second+500*time.Millisecond {
		t.Errorf("a second later the lease is %v", ttl)
	}
	unlocked(t, h)
	l.localQueues.mu.Lock()
	defer l.localQueues.mu.Unlock()
	if n := len(l.localQueues.byName); n != 0 {
		t.Errorf("%d gates are left: somebody is taken to wait", n)
	}
}
