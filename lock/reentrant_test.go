package lock

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestReentrant_IsTheHashThatRedissonReads(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Reentrant("orders"))
	if got := h.Owner().String(); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+$`).MatchString(got) {
		t.Errorf("owner %q is not uuid:decimal", got)
	}
	if got := w.hash("orders"); len(got) != 1 || got[h.Owner().String()] != "1" {
		t.Errorf("hash = %v, want only {%s: 1}", got, h.Owner())
	}
	ttl := w.eye.PTTL(ctxOf(t), "orders").Val()
	if ttl > 30*time.Second || ttl < 29*time.Second {
		t.Errorf("TTL = %v, want the watchdog's 30 s", ttl)
	}
	unlocked(t, h)
	w.empty()
}

func TestReentrant_CountsHoldsAsTheHashDoes(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	first := locked(t, l.Reentrant("a"))
	second := again(t, first)
	third := locked(t, l.Reentrant("a"), WithOwner(first.Owner()))
	for _, step := range []struct {
		hold *Hold
		want string
	}{{first, "3"}, {third, "2"}, {second, "1"}} {
		if got := w.hash("a")[first.Owner().String()]; got != step.want {
			t.Errorf("count = %q, want %s", got, step.want)
		}
		refused(t, l.Reentrant("a"))
		unlocked(t, step.hold)
	}
	w.empty()
	if _, err := second.Reenter(ctxOf(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Reenter after Unlock = %v, want ErrNotHeld", err)
	}
}

func TestReentrant_AllHoldsMayBeUnlockedAtOnce(t *testing.T) {
	w := newTestServer(t)
	l := w.locker().Reentrant("a")
	for range 50 {
		holds := []*Hold{locked(t, l)}
		for range 3 {
			h := again(t, holds[0])
			holds = append(holds, h)
		}
		var all sync.WaitGroup
		for _, h := range holds {
			all.Go(func() {
				if err := h.Unlock(ctxOf(t)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
		}
		all.Wait()
	}
	w.empty()
}

func TestReentrant_ALongerLeaseOfAReentryCounts(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for name, kind := range map[string]func(string) *Lock{
		"reentrant": l.Reentrant, "fenced": l.Fenced, "fair": l.Fair,
		"read":  func(n string) *Lock { return l.ReadWrite(n).Read() },
		"write": func(n string) *Lock { return l.ReadWrite(n).Write() },
	} {
		first := locked(t, kind(name), WithLease(time.Minute))
		second := locked(t, kind(name), WithOwner(first.Owner()), WithLease(time.Hour))
		if ttl := w.eye.PTTL(ctxOf(t), name).Val(); ttl < 59*time.Minute {
			t.Errorf("%s: TTL = %v, want 1h", name, ttl)
		}
		if left := time.Until(first.Deadline()); left < 59*time.Minute {
			t.Errorf("%s: deadline in %v, want 1h less the margin", name, left)
		}
		third := locked(t, kind(name), WithOwner(first.Owner()), WithLease(time.Second))
		if ttl := w.eye.PTTL(ctxOf(t), name).Val(); ttl < 59*time.Minute {
			t.Errorf("%s: a shorter lease made the TTL %v", name, ttl)
		}
		for _, h := range []*Hold{first, second, third} {
			unlocked(t, h)
		}
	}
}

func TestReentrant_ReenteringKeepsTheContextOfEachHold(t *testing.T) {
	w := newTestServer(t)
	first := locked(t, w.locker().Reentrant("a"))
	second := again(t, first)
	unlocked(t, first)
	if got := context.Cause(first.Context()); got != ErrReleased {
		t.Errorf("cause of the unlocked hold = %v, want ErrReleased", got)
	}
	if err := second.Context().Err(); err != nil {
		t.Errorf("the other hold ended too: %v", err)
	}
	unlocked(t, second)
}

func TestUnlock_IsIdempotentAndWorksAfterTheCallerLeft(t *testing.T) {
	w := newTestServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	h, err := w.locker().Reentrant("a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := h.Context().Err(); err != nil {
		t.Errorf("the hold ended with the caller's context: %v", err)
	}
	for range 2 {
		if err := h.Unlock(ctx); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
	w.empty()
}

func TestUnlock_SaysLostAndLeavesTheNextOwnerAlone(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Reentrant("a"))
	w.eye.Del(ctxOf(t), "a")
	next := locked(t, w.locker().Reentrant("a"))
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	if got := w.hash("a")[next.Owner().String()]; got != "1" {
		t.Errorf("the next owner's count = %q, want 1", got)
	}
	unlocked(t, next)
}

func TestWatchdog_EndsTheHoldWhenRedisSaysItIsGone(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker(WithWatchdog(renewedLease)).Reentrant("a"))
	w.eye.Del(ctxOf(t), "a")
	ended(t, h)
	if got := context.Cause(h.Context()); got != ErrLost {
		t.Errorf("cause = %v, want ErrLost", got)
	}
	if time.Until(h.Deadline()) < 0 {
		t.Error("the loss was found by the deadline, not by the renewal")
	}
}

func TestWithLease_EndsByItselfUnlessExtended(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Reentrant("a"), WithLease(time.Minute))
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl > time.Minute || ttl < 59*time.Second {
		t.Errorf("TTL = %v, want 1m", ttl)
	}
	wantErr(t, h.Extend(ctxOf(t), 2*time.Minute), nil)
	if left := time.Until(h.Deadline()); left < 110*time.Second {
		t.Errorf("deadline in %v after Extend(2m)", left)
	}
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl < 119*time.Second {
		t.Errorf("TTL = %v, want 2m", ttl)
	}
	unlocked(t, h)
	wantErr(t, h.Extend(ctxOf(t), time.Minute), ErrNotHeld)

	short := locked(t, l.Reentrant("a"), WithLease(50*time.Millisecond))
	ended(t, short)
	if got := context.Cause(short.Context()); got != ErrLost {
		t.Errorf("cause = %v, want ErrLost", got)
	}
	wantErr(t, short.Unlock(ctxOf(t)), ErrLost)
	wantErr(t, short.Extend(ctxOf(t), time.Minute), ErrLost)
	w.empty()
}

func TestLock_WithoutMessagesPolls(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Reentrant("a"))
	other := w.locker(WithPollInterval(50 * time.Millisecond)).Reentrant("a")
	got := beside(func() (*Hold, error) { return other.Lock(ctxOf(t)) })
	await.Until(t, "the waiter listens", func() bool { return w.listeners("redisson_lock__channel:{a}") == 1 })
	w.eye.Del(ctxOf(t), "a") // nothing is published
	unlocked(t, got(t))
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
}

func TestLock_WaitsNoLongerThanTheHoldersLease(t *testing.T) {
	w := newTestServer(t)
	w.eye.HSet(ctxOf(t), "a", "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57", 1)
	w.eye.PExpire(ctxOf(t), "a", 150*time.Millisecond) // its holder is dead
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).Reentrant("a")))
}

func TestLock_ContextEndIsBothErrors(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Reentrant("a"))
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	other := w.locker().Reentrant("a")
	failed := started(func() error { _, err := other.Lock(ctx); return err })
	await.Until(t, "the waiter listens", func() bool { return w.listeners("redisson_lock__channel:{a}") == 1 })
	cancel(mine)
	err := <-failed
	wantErr(t, err, ErrNotAcquired)
	wantErr(t, err, mine)
	w.silent("redisson_lock__channel:{a}")
	unlocked(t, h)
	w.empty()

	_, err = other.Lock(within(t, 0))
	wantErr(t, err, context.DeadlineExceeded)
}

func TestClose_EndsHoldsAndWaits(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker()
	h := locked(t, l.Reentrant("a"))
	held := locked(t, other.Reentrant("b"))
	failed := started(func() error { _, err := l.Reentrant("b").Lock(ctxOf(t)); return err })
	await.Until(t, "the waiter listens", func() bool { return w.listeners("redisson_lock__channel:{b}") == 1 })
	l.Close()
	wantErr(t, <-failed, ErrClosed)
	if got := context.Cause(h.Context()); got != ErrClosed {
		t.Errorf("cause = %v, want ErrClosed", got)
	}
	wantErr(t, h.Unlock(ctxOf(t)), ErrClosed)
	_, err := l.Reentrant("a").TryLock(ctxOf(t))
	wantErr(t, err, ErrClosed)
	w.silent("redisson_lock__channel:{b}")
	unlocked(t, held)
	w.empty()
	l.Close()
}
