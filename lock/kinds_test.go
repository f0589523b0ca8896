package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// An exclusive is a kind of which one hold excludes all others.
type exclusive struct {
	name    string
	kind    func(*Locker) *Lock
	channel string // a pattern of the channels on which its waiters listen
}

func exclusives() []exclusive {
	return []exclusive{
		{"reentrant", func(l *Locker) *Lock { return l.Reentrant("a") }, "redisson_lock__channel:{a}"},
		{"fair", func(l *Locker) *Lock { return l.Fair("a") }, "redisson_lock__channel:{a}:*"},
		{"fenced", func(l *Locker) *Lock { return l.Fenced("a") }, "redisson_lock__channel:{a}"},
		{"write", func(l *Locker) *Lock { return l.ReadWrite("a").Write() }, "redisson_rwlock:{a}"},
		{"simple", func(l *Locker) *Lock { return l.Simple("a") }, "weir_simple:{a}"},
		{"group", func(l *Locker) *Lock { return l.Group("a", "one", "two", "three") }, "redisson_lock__channel:{a}"},
		{"multi", func(l *Locker) *Lock { return Multi(l.Fenced("b"), l.Reentrant("a")) }, "redisson_lock__channel:{a}"},
		{"red", func(l *Locker) *Lock { return Redlock(l.Reentrant("a")) }, "redisson_lock__channel:{a}"},
		{"permit", func(l *Locker) *Lock { return l.ExpirableSemaphore("a").lock }, "redisson_sc:{a}"},
	}
}

// listening is how many channels that match have a listener.
func (t *testServer) listening(pattern string) int {
	t.t.Helper()
	channels, err := t.eye.PubSubChannels(ctxOf(t.t), pattern).Result()
	if err != nil {
		t.t.Fatal(err)
	}
	return len(channels)
}

// clean fails unless only what belongs there for good is left.
func (t *testServer) clean(pattern string) {
	t.t.Helper()
	await.Until(t.t, "nothing is left", func() bool {
		keys, err := t.eye.Keys(ctxOf(t.t), "*").Result()
		for _, key := range keys {
			if !strings.HasPrefix(key, "redisson_lock_token:") && t.eye.Type(ctxOf(t.t), key).Val() != "string" {
				return false
			}
		}
		return err == nil && t.listening(pattern) == 0
	})
}

// eachExclusive runs a test for every kind on a server of its own, all beside each
// other: most of them wait for a lease.
func eachExclusive(t *testing.T, f func(t *testing.T, w *testServer, kind func(*Locker) *Lock, channel string)) {
	t.Helper()
	leakFree(t)
	for _, k := range exclusives() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			w := newServer(t)
			if k.name == "permit" {
				expirable(t, w.locker(), 1)
			}
			f(t, w, k.kind, k.channel)
			w.clean(k.channel)
		})
	}
}

func TestKinds_ExcludeAndHandOver(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, channel string) {
		h := locked(t, kind(w.locker()))
		one, two := kind(w.locker(WithPollInterval(time.Hour))), kind(w.locker(WithPollInterval(time.Hour)))
		refused(t, one)
		got := beside(func() (*Hold, error) { return one.Lock(ctxOf(t)) })
		await.Until(t, "the waiter listens", func() bool { return w.listening(channel) > 0 })
		refused(t, two)
		unlocked(t, h)
		next := got(t)
		refused(t, two)
		unlocked(t, next)
		unlocked(t, locked(t, two))
	})
}

// beside runs f beside the test; the result waits for it.
func beside(f func() (*Hold, error)) func(t *testing.T) *Hold {
	type result struct {
		hold *Hold
		err  error
	}
	done := make(chan result, 1)
	go func() {
		h, err := f()
		done <- result{h, err}
	}()
	return func(t *testing.T) *Hold {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatalf("Lock: %v", r.err)
		}
		return r.hold
	}
}

func TestKinds_NeverTwoAtATime(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		var inside, rounds atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			lk := kind(w.locker())
			for range 3 {
				all.Go(func() {
					for range 10 {
						h, err := lk.Lock(ctxOf(t))
						if err != nil {
							t.Error(err)
							return
						}
						if inside.Add(1) != 1 {
							t.Error("two holders at once")
						}
						rounds.Add(1)
						inside.Add(-1)
						if err := h.Unlock(ctxOf(t)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		if got := rounds.Load(); got != 90 {
			t.Errorf("%d rounds, want 90", got)
		}
	})
}

func TestKinds_CancelledWaitersLeaveNothing(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, channel string) {
		h := locked(t, kind(w.locker()))
		lk := kind(w.locker())
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := lk.Lock(ctx); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
					t.Errorf("Lock = %v, want ErrNotAcquired and Canceled", err)
				}
			})
		}
		await.Until(t, "a waiter listens", func() bool { return w.listening(channel) > 0 })
		cancel()
		all.Wait()
		await.Until(t, "nobody listens", func() bool { return w.listening(channel) == 0 })
		unlocked(t, h)
		unlocked(t, locked(t, lk))
	})
}

func TestKinds_CancelInFlightLeavesNothing(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, channel string) {
		l, p := w.behind(WithCallTimeout(500 * time.Millisecond))
		lk := kind(l)
		before := w.calls()
		p.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		failed := started(func() error { _, err := lk.Lock(ctx); return err })
		await.Until(t, "a script ran", func() bool { return w.calls() > before })
		cancel()
		wantErr(t, <-failed, context.Canceled)
		p.Release()
		free := kind(w.locker())
		await.Until(t, "the lock is free", func() bool {
			h, err := free.TryLock(ctxOf(t))
			if err != nil {
				return false
			}
			unlocked(t, h)
			return true
		})
	})
}

// Callers come and go at any moment: while they queue, while a script is under
// way, while they subscribe, when they are just granted the lock.
func TestKinds_CancelAtAnyMomentLeavesNothing(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		var all sync.WaitGroup
		for range 3 {
			lk := kind(w.locker())
			for range 4 {
				all.Go(func() {
					for range 25 {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
						if h, err := lk.Lock(ctx); err == nil {
							if err := h.Unlock(ctx); err != nil {
								t.Errorf("Unlock: %v", err)
							}
						} else if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Lock = %v, want ErrNotAcquired and DeadlineExceeded", err)
						}
						cancel()
					}
				})
			}
		}
		all.Wait()
		unlocked(t, locked(t, kind(w.locker())))
	})
}

// started runs f beside the test.
func started(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func TestKinds_LostRepliesAreFoundOut(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, channel string) {
		l, p := w.behind()
		lk := kind(l)
		h := locked(t, lk) // so that Redis knows the scripts
		wantErr(t, h.Extend(ctxOf(t), time.Minute), nil)
		unlocked(t, h)

		p.Lose("evalsha")
		if _, err := lk.TryLock(ctxOf(t)); err == nil || errors.Is(err, ErrNotAcquired) {
			t.Fatalf("TryLock = %v, want the connection's error", err)
		}
		await.Until(t, "the lock is free", func() (ok bool) {
			var err error
			h, err = lk.TryLock(ctxOf(t))
			return err == nil
		})
		p.Lose(l.scripts[extendOf(t)].sha)
		if err := h.Extend(ctxOf(t), time.Minute); err == nil {
			t.Error("Extend succeeded without a reply")
		}
		if err := h.Extend(ctxOf(t), time.Minute); err != nil {
			t.Error(err)
		}
		p.Lose("evalsha")
		unlocked(t, h)
		if got := p.Lost(); got != 3 {
			t.Errorf("%d replies lost, want 3", got)
		}
		unlocked(t, locked(t, lk))
	})
}

// extendOf is the script that renews the kind of this subtest.
func extendOf(t *testing.T) string {
	switch _, kind, _ := strings.Cut(t.Name(), "/"); kind {
	case "write", "simple", "group", "permit":
		return kind + "_extend"
	default:
		return "reentrant_extend"
	}
}

func TestKinds_ScriptFlushChangesNothing(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		lk := kind(w.locker())
		for range 2 {
			w.eye.ScriptFlush(ctxOf(t))
			h := locked(t, lk)
			w.eye.ScriptFlush(ctxOf(t))
			wantErr(t, h.Extend(ctxOf(t), time.Minute), nil)
			w.eye.ScriptFlush(ctxOf(t))
			unlocked(t, h)
		}
	})
}

func TestKinds_EndWithTheirLease(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		lk := kind(w.locker())
		h := locked(t, lk, WithLease(300*time.Millisecond))
		next := locked(t, kind(w.locker()))
		if h.Context().Err() == nil {
			t.Error("another holds the lock, and the context has not ended")
		}
		wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
		unlocked(t, next)
	})
}

func TestKinds_AreRenewed(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		h := locked(t, kind(w.locker(WithWatchdog(renewedLease))))
		end := time.Now().Add(renewedLease)
		await.Until(t, "the lease would be over", func() bool { return time.Now().After(end) })
		refused(t, kind(w.locker()))
		if h.Context().Err() != nil {
			t.Errorf("ended: %v", context.Cause(h.Context()))
		}
		unlocked(t, h)
	})
}

func TestKinds_ReenterOrSayThatTheyCannot(t *testing.T) {
	eachExclusive(t, func(t *testing.T, w *testServer, kind func(*Locker) *Lock, _ string) {
		lk, other := kind(w.locker()), kind(w.locker())
		h := locked(t, lk)
		if !lk.traits.reentrant {
			_, err := h.Reenter(ctxOf(t))
			wantErr(t, err, ErrNotReentrant)
			_, err = lk.TryLock(ctxOf(t), WithOwner(h.Owner()))
			wantErr(t, err, ErrNotReentrant)
			unlocked(t, h)
			return
		}
		second := again(t, h)
		third := locked(t, lk, WithOwner(h.Owner()))
		if got := fmt.Sprint(second.Token(), third.Token()); got != fmt.Sprint(h.Token(), h.Token()) {
			t.Errorf("tokens %s, want all %d", got, h.Token())
		}
		for _, h := range []*Hold{h, third, second} {
			refused(t, other)
			unlocked(t, h)
		}
		unlocked(t, locked(t, other))
	})
}
