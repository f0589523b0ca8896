package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// semaphoreOf makes the semaphore "a" with n permits.
func semaphoreOf(t *testing.T, l *Locker, n int64) *Semaphore {
	t.Helper()
	s := l.Semaphore("a")
	if _, err := s.TrySetPermits(ctxOf(t), n); err != nil {
		t.Fatal(err)
	}
	return s
}

// expirable makes the expirable semaphore "a" with n permits.
func expirable(t *testing.T, l *Locker, n int64) *ExpirableSemaphore {
	t.Helper()
	p := l.ExpirableSemaphore("a")
	if _, err := p.TrySetPermits(ctxOf(t), n); err != nil {
		t.Fatal(err)
	}
	return p
}

func available(t *testing.T, s interface {
	Available(context.Context) (int64, error)
}, want int64) {
	t.Helper()
	await.Until(t, "as many permits as there should be", func() bool {
		got, err := s.Available(ctxOf(t))
		return err == nil && got == want
	})
}

func TestSemaphore_NeverMoreThanItsPermits(t *testing.T) {
	w := newTestServer(t)
	s := semaphoreOf(t, w.locker(), 5)
	var inside, most atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		s := w.locker().Semaphore("a")
		for i := range 4 {
			all.Go(func() {
				n := int64(i%3 + 1)
				for range 10 {
					if err := s.Acquire(ctxOf(t), n); err != nil {
						t.Error(err)
						return
					}
					now := inside.Add(n)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					inside.Add(-n)
					if err := s.Release(ctxOf(t), n); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if got := most.Load(); got > 5 {
		t.Errorf("%d permits were out at once, want at most 5", got)
	}
	available(t, s, 5)
	w.silent("redisson_sc:{a}")
}

func TestSemaphore_RefusesWhatItHasNot(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	wantErr(t, l.Semaphore("none").TryAcquire(ctxOf(t), 1), ErrNotAcquired)
	s := semaphoreOf(t, l, 2)
	wantErr(t, s.TryAcquire(ctxOf(t), 3), ErrNotAcquired)
	for _, n := range []int64{0, -1} {
		if s.TryAcquire(ctxOf(t), n) == nil || s.Release(ctxOf(t), n) == nil {
			t.Errorf("%d permits were taken or given", n)
		}
	}
	available(t, s, 2)
}

func TestSemaphore_WaitersHearOfARelease(t *testing.T) {
	w := newTestServer(t)
	s := semaphoreOf(t, w.locker(), 1)
	wantErr(t, s.Acquire(ctxOf(t), 1), nil)
	other := w.locker(WithPollInterval(time.Hour)).Semaphore("a")
	done := started(func() error { return other.Acquire(ctxOf(t), 1) })
	await.Until(t, "the waiter listens", func() bool { return w.listeners("redisson_sc:{a}") == 1 })
	wantErr(t, s.Release(ctxOf(t), 1), nil)
	wantErr(t, <-done, nil)
	w.silent("redisson_sc:{a}")
}

func TestSemaphore_CancelledOrLostCallsCostNoPermit(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind(WithCallTimeout(500 * time.Millisecond))
	s := semaphoreOf(t, l, 3)
	wantErr(t, errors.Join(s.Acquire(ctxOf(t), 1), s.Release(ctxOf(t), 1)), nil) // so that Redis knows the scripts
	p.Lose("evalsha")
	if err := s.Acquire(ctxOf(t), 2); err == nil || errors.Is(err, ErrNotAcquired) {
		t.Fatalf("Acquire = %v, want the connection's error", err)
	}
	available(t, s, 3)

	before := w.calls()
	p.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	done := started(func() error { return s.Acquire(ctx, 2) })
	await.Until(t, "the script ran", func() bool { return w.calls() > before })
	cancel()
	wantErr(t, <-done, context.Canceled)
	p.Release()
	available(t, s, 3)

	wantErr(t, s.Acquire(ctxOf(t), 2), nil)
	p.Lose("evalsha")
	wantErr(t, s.Release(ctxOf(t), 2), nil)
	available(t, s, 3)
}

func TestSemaphore_TheSameAttemptTwiceTakesOnce(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	s := semaphoreOf(t, l, 3)
	c := callParams{owner: l.NewOwner(), permits: 2, lease: markTTL}
	for range 2 {
		if a, err := s.kind.attempt(ctxOf(t), c); err != nil || !a.held {
			t.Fatalf("attempt = %+v, %v", a, err)
		}
		available(t, s, 1)
	}
	for range 2 {
		if _, err := s.kind.release(ctxOf(t), c); err != nil {
			t.Fatal(err)
		}
		available(t, s, 3)
	}
}

// dead takes a permit for a process that nobody hears of again.
func (t *testServer) dead(p *ExpirableSemaphore, lease time.Duration) {
	t.t.Helper()
	c := callParams{owner: p.lock.newOwner(), count: 1, lease: lease}
	if a, err := p.kind.attempt(ctxOf(t.t), c); err != nil || !a.held {
		t.t.Fatalf("attempt = %+v, %v", a, err)
	}
}

func TestPermits_OfTheDeadComeBack(t *testing.T) {
	w := newTestServer(t)
	p := expirable(t, w.locker(), 2)
	w.dead(p, time.Minute)
	w.dead(p, time.Minute)
	available(t, p, 0)
	for _, member := range w.eye.ZRange(ctxOf(t), "{a}:timeout", 0, -1).Val() {
		w.eye.Do(ctxOf(t), "zadd", "{a}:timeout", time.Now().Add(-time.Millisecond).UnixMilli(), member)
	}
	available(t, p, 2) // counted before anybody takes them back
	if got := w.eye.Get(ctxOf(t), "a").Val(); got != "0" {
		t.Errorf("%s permits are left, want 0: nobody took them back", got)
	}
	one, two := locked(t, p), locked(t, p)
	refused(t, p)
	unlocked(t, one)
	w.dead(p, 150*time.Millisecond)
	// Nobody tells this waiter, but it knows when the permit comes back.
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).ExpirableSemaphore("a")))
	unlocked(t, two)
	available(t, p, 2)
}

func TestPermits_OneThatCameBackCannotBeExtended(t *testing.T) {
	w := newTestServer(t)
	p := expirable(t, w.locker(), 1)
	h := locked(t, p)
	member := w.eye.ZRange(ctxOf(t), "{a}:timeout", 0, 0).Val()[0]
	w.eye.Do(ctxOf(t), "zadd", "{a}:timeout", time.Now().Add(-time.Millisecond).UnixMilli(), member)
	wantErr(t, h.Extend(ctxOf(t), time.Minute), ErrLost)
}

func TestPermits_ComeBackWhenTheirHolderDies(t *testing.T) {
	w := newTestServer(t)
	p := expirable(t, w.locker(), 2)
	h := locked(t, p)
	lost := locked(t, p, WithLease(60*time.Millisecond))
	next := locked(t, w.locker(WithPollInterval(time.Hour)).ExpirableSemaphore("a")) // hears nothing, but knows when
	if lost.Context().Err() == nil {
		t.Error("the permit is another's, and its context has not ended")
	}
	available(t, p, 0)
	unlocked(t, next)
	unlocked(t, h)
	available(t, p, 2)
	wantErr(t, lost.Unlock(ctxOf(t)), ErrLost)
	available(t, p, 2)
}

func TestLatch_OpensAtZeroForAll(t *testing.T) {
	w := newTestServer(t)
	latch := w.locker().Latch("a")
	if err := latch.Await(ctxOf(t)); err != nil {
		t.Fatalf("Await of a latch without a count: %v", err)
	}
	if _, err := latch.TrySetCount(ctxOf(t), 3); err != nil {
		t.Fatal(err)
	}
	if set, err := latch.TrySetCount(ctxOf(t), 5); err != nil || set {
		t.Errorf("TrySetCount of a closed latch = %v, %v", set, err)
	}
	var waiting []chan error
	for range 2 {
		l := w.locker(WithPollInterval(time.Hour))
		for range 3 {
			waiting = append(waiting, started(func() error { return l.Latch("a").Await(ctxOf(t)) }))
		}
	}
	await.Until(t, "all processes listen", func() bool { return w.listeners("redisson_countdownlatch__channel__{a}") == 2 })
	for left := int64(3); left > 0; left-- {
		if got, err := latch.Count(ctxOf(t)); err != nil || got != left {
			t.Errorf("Count = %d, %v, want %d", got, err, left)
		}
		wantErr(t, latch.CountDown(ctxOf(t)), nil)
	}
	for _, done := range waiting {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.silent("redisson_countdownlatch__channel__{a}")
}

func TestLatch_ALostReplyCountsOnce(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind()
	latch := l.Latch("a")
	if _, err := latch.TrySetCount(ctxOf(t), 4); err != nil {
		t.Fatal(err)
	}
	wantErr(t, latch.CountDown(ctxOf(t)), nil) // so that Redis knows the script
	p.Lose("evalsha")
	wantErr(t, latch.CountDown(ctxOf(t)), nil)
	if got, err := latch.Count(ctxOf(t)); err != nil || got != 2 {
		t.Errorf("Count = %d, %v, want 2", got, err)
	}
	wantErr(t, latch.Await(within(t, 20*time.Millisecond)), context.DeadlineExceeded)
	w.silent("redisson_countdownlatch__channel__{a}")
}
