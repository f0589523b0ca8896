package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// A holder who would renew in ten seconds only hears at once that the lock was taken
// away, by us or as Redisson does it. A message that says nothing of the kind does
// no harm.
func TestForceListener_HearsThatTheLockWasTakenAway(t *testing.T) {
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
	if err := c.take(t, w, kind(w.locker())); err != nil {
		t.Fatal(err)
	}
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
