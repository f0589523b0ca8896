package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestGate_LetsInOneByOneInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		first, err := g.wait(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 5 {
			go func() {
				p, err := g.wait(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				p.leave(0)
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Fatal("somebody came in while the gate was taken")
		}
		first.leave(0)
		synctest.Wait()
		for i, got := range order {
			if i != got {
				t.Fatalf("order = %v", order)
			}
		}
		if len(order) != 5 || len(g.byName) != 0 {
			t.Errorf("%d came in, %d gates left; want 5 and 0", len(order), len(g.byName))
		}
	})
}

func TestGate_WhoLeavesTheQueueHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		first, _ := g.wait(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		go g.wait(ctx, "a")
		synctest.Wait()
		in := false
		go func() {
			p, _ := g.wait(t.Context(), "a")
			in = true
			p.leave(0)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		first.leave(0)
		synctest.Wait()
		if !in || len(g.byName) != 0 {
			t.Errorf("in = %v, %d gates left", in, len(g.byName))
		}
	})
}

func TestGate_StandsBackWhenOthersWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		p, _ := g.wait(t.Context(), "a")
		start := time.Now()
		for range maxStreak + 1 {
			next := make(chan *ticket)
			go func() {
				p, _ := g.wait(t.Context(), "a")
				next <- p
			}()
			synctest.Wait()
			p.leave(1)
			p = <-next
		}
		if got := time.Since(start); got != yieldDelay {
			t.Errorf("stood back for %v in %d hand-overs, want %v", got, maxStreak+1, yieldDelay)
		}
		p.leave(0)
	})
}

func TestGate_StandsBackForOthersWhenAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		start := time.Now()
		for range 2*maxStreak + 1 {
			p, err := g.wait(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			p.leave(1)
		}
		if got := time.Since(start); got != 2*yieldDelay {
			t.Errorf("stood back for %v in %d rounds, want %v", got, 2*maxStreak+1, 2*yieldDelay)
		}
		<-time.After(3 * streakTTL)
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.byName) != 0 {
			t.Errorf("%d gates are left, want none", len(g.byName))
		}
	})
}

const fairQueue = "redisson_lock_queue:{a}"

// queued waits until so many stand in the queue.
func (t *testServer) queued(n int64) {
	t.t.Helper()
	await.Until(t.t, "the queue is as long as it should be", func() bool { return t.eye.LLen(ctxOf(t.t), fairQueue).Val() == n })
}

func TestFair_ServesInOrderAcrossProcesses(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Fair("a"))
	lockers := []*Locker{w.locker(WithPollInterval(time.Hour)), w.locker(WithPollInterval(time.Hour)), w.locker(WithPollInterval(time.Hour))}
	order := make(chan int, 9)
	for i := range 9 {
		go func() {
			h, err := lockers[i%3].Fair("a").Lock(ctxOf(t))
			if err != nil {
				t.Error(err)
			} else {
				order <- i
				h.Unlock(ctxOf(t))
			}
		}()
		w.queued(int64(i + 1))
	}
	refused(t, w.locker().Fair("a"))
	unlocked(t, h)
	for want := range 9 {
		if got := <-order; got != want {
			t.Fatalf("number %d came when it was the turn of %d", got, want)
		}
	}
	w.empty()
}

func TestFair_WhoGivesUpLeavesTheQueue(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Fair("a"))
	one, two := w.locker(), w.locker(WithPollInterval(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	failed := started(func() error { _, err := one.Fair("a").Lock(ctx); return err })
	w.queued(1)
	got := beside(func() (*Hold, error) { return two.Fair("a").Lock(ctxOf(t)) })
	w.queued(2)
	cancel()
	wantErr(t, <-failed, context.Canceled)
	w.queued(1)
	// Who stood behind moves up: its time is one waiter's shorter.
	behind := w.eye.ZRangeWithScores(ctxOf(t), "redisson_lock_timeout:{a}", 0, -1).Val()
	if in := time.Until(time.UnixMilli(int64(behind[0].Score))); len(behind) != 1 || in > 6*time.Minute {
		t.Errorf("%d times, the first in %v; want one, in at most 6m", len(behind), in)
	}
	unlocked(t, h)
	unlocked(t, got(t))
	w.empty()
}

func TestFair_ADeadHeadIsPassedOver(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Fair("a"))
	dead := w.locker(WithPollInterval(100 * time.Millisecond)) // is believed for 300 ms
	lk := dead.Fair("a")
	if a, err := lk.kind.attempt(ctxOf(t), callParams{owner: dead.NewOwner(), count: 1, lease: time.Second, willWait: true}); err != nil || a.held {
		t.Fatalf("attempt = %v, %v", a, err)
	}
	w.queued(1)
	got := beside(func() (*Hold, error) {
		return w.locker(WithPollInterval(200 * time.Millisecond)).Fair("a").Lock(ctxOf(t))
	})
	w.queued(2)
	unlocked(t, h)
	unlocked(t, got(t))
	w.empty()
}

// A waiter is passed over from when it has given up, though it has not left the queue yet. Whoever finds that tells the
// next one, which asks again only after an hour.
func TestFair_WhoHasGivenUpIsPassedOver(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Fair("a"))
	l := w.locker(WithPollInterval(time.Hour))
	lk := l.Fair("a")
	params := callParams{owner: l.NewOwner(), count: 1, lease: time.Second, willWait: true, timeout: 300 * time.Millisecond}
	if a, err := lk.kind.attempt(ctxOf(t), params); err != nil || a.held {
		t.Fatalf("attempt = %v, %v", a, err)
	}
	w.queued(1)
	got := beside(func() (*Hold, error) { return lk.Lock(ctxOf(t)) })
	w.queued(2)
	await.Until(t, "the second listens", func() bool {
		second := w.eye.LIndex(ctxOf(t), fairQueue, 1).Val()
		return w.listeners("redisson_lock__channel:{a}:"+second) == 1
	})
	unlocked(t, h)
	await.Until(t, "somebody finds that the first has given up", func() bool {
		if h, err := w.locker().Fair("a").TryLock(ctxOf(t)); err == nil {
			unlocked(t, h)
			t.Fatal("somebody who did not wait came first")
		}
		return len(w.hash("a")) == 1
	})
	unlocked(t, got(t))
	w.empty()
}

// Redisson's dead waiters are passed over when the time they wrote down is up.
func TestFair_ADeadJavaHeadIsPassedOver(t *testing.T) {
	w := newTestServer(t)
	const java = "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57"
	w.eye.RPush(ctxOf(t), fairQueue, java)
	w.eye.Do(ctxOf(t), "zadd", "redisson_lock_timeout:{a}", time.Now().Add(time.Minute).UnixMilli(), java)
	lk := w.locker(WithPollInterval(50 * time.Millisecond)).Fair("a")
	refused(t, lk)
	w.eye.Do(ctxOf(t), "zadd", "redisson_lock_timeout:{a}", time.Now().Add(-time.Millisecond).UnixMilli(), java)
	unlocked(t, locked(t, lk))
	w.empty()
}

func TestFair_AnEntryWithoutATimeIsPassedOver(t *testing.T) {
	w := newTestServer(t)
	w.eye.RPush(ctxOf(t), fairQueue, "nobody")
	unlocked(t, locked(t, w.locker().Fair("a")))
	w.empty()
}

func TestFair_AWaiterBehindAFreeLockDoesNotSpin(t *testing.T) {
	w := newTestServer(t)
	const java = "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57"
	w.eye.RPush(ctxOf(t), fairQueue, java)
	w.eye.Do(ctxOf(t), "zadd", "redisson_lock_timeout:{a}", time.Now().Add(500*time.Millisecond).UnixMilli(), java)
	before := w.calls()
	unlocked(t, locked(t, w.locker(WithPollInterval(250*time.Millisecond)).Fair("a")))
	if got := w.calls() - before; got > 15 {
		t.Errorf("%d script calls in half a second behind a dead head", got)
	}
}

func TestFair_KeepsItsPlaceInALongQueue(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithPollInterval(100 * time.Millisecond))
	h := locked(t, l.Fair("a"))
	got := beside(func() (*Hold, error) { return l.Fair("a").Lock(ctxOf(t)) })
	w.queued(1)
	// As if the waiter had stood there for nearly its five minutes.
	waiter := w.eye.LIndex(ctxOf(t), fairQueue, 0).Val()
	w.eye.Do(ctxOf(t), "zadd", "redisson_lock_timeout:{a}", time.Now().Add(time.Second).UnixMilli(), waiter)
	await.Until(t, "it wrote down a later time", func() bool {
		return time.Until(time.UnixMilli(int64(w.eye.ZScore(ctxOf(t), "redisson_lock_timeout:{a}", waiter).Val()))) > 4*time.Minute
	})
	unlocked(t, h)
	unlocked(t, got(t))
}
