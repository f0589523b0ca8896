//go:build java

package redisson

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/weir-proxy/weir/lock"
)

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waiting runs wait beside the test; the result waits for its end.
func waiting(t *testing.T, wait func(context.Context) error) func() {
	t.Helper()
	ctx, done := brief(t), make(chan error, 1)
	go func() { done <- wait(ctx) }()
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestSemaphore_CountsForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().Semaphore("seats")
	j.do("true", "ann", "semaphore.set", "seats", 3)
	if set, err := ours.TrySetPermits(brief(t), 9); err != nil || set {
		t.Fatalf("TrySetPermits = %v, %v; Java had set it", set, err)
	}
	if err := ours.Acquire(brief(t), 2); err != nil {
		t.Fatal(err)
	}
	j.do("1", "ann", "semaphore.left", "seats")
	j.do("true", "ann", "semaphore.try", "seats", 1)
	if err := ours.TryAcquire(brief(t), 1); !errors.Is(err, lock.ErrNotAcquired) {
		t.Fatalf("TryAcquire = %v, want ErrNotAcquired", err)
	}
	got := waiting(t, func(ctx context.Context) error { return ours.Acquire(ctx, 2) })
	w.listens(1, "redisson_sc:{seats}")
	j.do("given", "ann", "semaphore.give", "seats", 2)
	got()
	waits := j.begin("bob", "semaphore.take", "seats", 2)
	w.listens(1, "redisson_sc:{seats}")
	waits.waits()
	if err := ours.Release(brief(t), 2); err != nil {
		t.Fatal(err)
	}
	waits.is("taken")
	j.do("0", "ann", "semaphore.left", "seats")
}

func TestPermits_CountForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().ExpirableSemaphore("seats")
	if set, err := ours.TrySetPermits(brief(t), 2); err != nil || !set {
		t.Fatalf("TrySetPermits = %v, %v", set, err)
	}
	j.do("false", "ann", "permits.set", "seats", 5)
	hold := held(t, ours)
	id := j.begin("ann", "permits.take", "seats").wait()
	j.do("0", "ann", "permits.left", "seats")
	if n, err := ours.Available(brief(t)); err != nil || n != 0 {
		t.Fatalf("Available = %d, %v; want 0", n, err)
	}
	refused(t, ours)
	got := beside(t, ours)
	w.listens(1, "redisson_sc:{seats}")
	j.do("true", "ann", "permits.give", "seats", id)
	second := got()
	waits := j.begin("bob", "permits.take", "seats")
	w.listens(1, "redisson_sc:{seats}")
	waits.waits()
	unlocked(t, second)
	id = waits.wait()
	j.do("true", "bob", "permits.give", "seats", id)
	unlocked(t, hold)
	j.do("2", "ann", "permits.left", "seats")

	// Java's permit whose lease is over comes back, to us as well.
	j.begin("ann", "permits.lease", "seats", 300).wait()
	one := held(t, ours)
	unlocked(t, held(t, ours))
	unlocked(t, one)
}

func TestLatch_OpensForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().Latch("start")
	j.do("true", "ann", "latch.set", "start", 2)
	if n, err := ours.Count(brief(t)); err != nil || n != 2 {
		t.Fatalf("Count = %d, %v; want 2", n, err)
	}
	opened := waiting(t, ours.Await)
	w.listens(1, "redisson_countdownlatch__channel__{start}")
	if err := ours.CountDown(brief(t)); err != nil {
		t.Fatal(err)
	}
	j.do("1", "ann", "latch.count", "start")
	j.do("counted", "ann", "latch.down", "start")
	opened()

	if set, err := ours.TrySetCount(brief(t), 2); err != nil || !set {
		t.Fatalf("TrySetCount = %v, %v", set, err)
	}
	waits := j.begin("bob", "latch.await", "start")
	w.listens(1, "redisson_countdownlatch__channel__{start}")
	j.do("counted", "ann", "latch.down", "start")
	waits.waits()
	if err := ours.CountDown(brief(t)); err != nil {
		t.Fatal(err)
	}
	waits.is("open")
	j.do("0", "ann", "latch.count", "start")
}
