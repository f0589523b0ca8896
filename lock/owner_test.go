package lock

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// ownerRaces are the kinds of locks with which several goroutines may use one owner.
func ownerRaces(l *Locker) map[string]*Lock {
	return map[string]*Lock{
		"reentrant": l.Reentrant("a"), "fair": l.Fair("a"), "fenced": l.Fenced("a"), "read": l.ReadWrite("a").Read(),
		"write": l.ReadWrite("a").Write(), "group": l.Group("a", "1"), "multi": Multi(l.Reentrant("a"), l.Fenced("b")),
	}
}

func TestWithOwner_HoldsOfGoroutinesAreCounted(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker()
	for name, lk := range ownerRaces(l) {
		t.Run(name, func(t *testing.T) {
			for range 30 {
				holds, owner := make([]*Hold, 3), WithOwner(l.NewOwner())
				ways := []func() (*Hold, error){
					func() (*Hold, error) { return lk.TryLock(ctxOf(t), owner) },
					func() (*Hold, error) { return lk.Lock(ctxOf(t), owner) },
				}
				var all sync.WaitGroup
				for i := range holds {
					all.Go(func() {
						var err error
						if holds[i], err = ways[i%2](); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if t.Failed() {
					return
				}
				unlocked(t, holds[0])
				unlocked(t, holds[1])
				wantErr(t, holds[2].Context().Err(), nil)
				against := ownerRaces(other)[name]
				if name == "read" {
					against = other.ReadWrite("a").Write()
				}
				refused(t, against)
				unlocked(t, holds[2])
			}
		})
	}
}

func TestWithOwner_LockWhileAnotherGoroutineUnlocks(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker()
	for name, lk := range ownerRaces(l) {
		t.Run(name, func(t *testing.T) {
			for range 60 {
				owner := WithOwner(l.NewOwner())
				h := locked(t, lk, owner)
				var next *Hold
				var err error
				var all sync.WaitGroup
				all.Go(func() { _ = h.Unlock(ctxOf(t)) })
				all.Go(func() { next, err = lk.Lock(ctxOf(t), owner) })
				all.Wait()
				if err != nil {
					t.Fatal(err)
				}
				against := ownerRaces(other)[name]
				if name == "read" {
					against = other.ReadWrite("a").Write()
				}
				refused(t, against)
				unlocked(t, next)
			}
		})
	}
}

// A lock and a combination that has it are the same hold in Redis.
func TestWithOwner_PartsOfGoroutines(t *testing.T) {
	w := newTestServer(t)
	l, other := w.locker(), w.locker()
	for name, locks := range map[string][]*Lock{
		"multi": {l.Reentrant("a"), Multi(l.Reentrant("a"), l.Reentrant("b"))}, "group": {l.Group("a", "1"), l.Group("a", "1", "2")},
	} {
		t.Run(name, func(t *testing.T) {
			for range 30 {
				owner, holds, errs := WithOwner(l.NewOwner()), make([]*Hold, 2), make([]error, 2)
				var all sync.WaitGroup
				for i, lk := range locks {
					all.Go(func() { holds[i], errs[i] = lk.TryLock(ctxOf(t), owner) })
				}
				all.Wait()
				got := 0 // the one that came first
				if errs[0] != nil {
					got = 1
				}
				if errs[got] != nil || !errors.Is(errs[1-got], ErrNotReentrant) {
					t.Fatalf("%v; want one of them held, and ErrNotReentrant of the other", errs)
				}
				var next *Hold
				all.Go(func() { unlocked(t, holds[got]) })
				all.Go(func() {
					for errs[0] = ErrNotReentrant; errors.Is(errs[0], ErrNotReentrant); {
						next, errs[0] = locks[1-got].Lock(ctxOf(t), owner)
					}
				})
				all.Wait()
				if errs[0] != nil {
					t.Fatal(errs[0])
				}
				against := other.Group("a", "1")
				if name == "multi" {
					against = other.Reentrant("a")
				}
				refused(t, against)
				unlocked(t, next)
			}
		})
	}
}

func TestWithOwner_TryLockBesideAWaiterOfItsOwner(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h, lk, owner := locked(t, w.locker().Reentrant("a")), l.Reentrant("a"), WithOwner(l.NewOwner())
	next := beside(func() (*Hold, error) { return lk.Lock(ctxOf(t), owner) })
	await.Until(t, "it waits", func() bool { return w.listeners("redisson_lock__channel:{a}") == 1 })
	_, err := lk.acquire(ctxOf(t), []LockOption{owner}, (*acquisition).tryOnce, time.Millisecond)
	wantErr(t, err, ErrNotAcquired)
	wantErr(t, err, errOwnerBusy)
	unlocked(t, h)
	unlocked(t, next(t))
}
