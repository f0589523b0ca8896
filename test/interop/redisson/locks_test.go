//go:build java

package redisson

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
)

// A pair is one kind of lock on both sides.
type pair struct {
	java    string // the kind, as the Player knows it
	name    string
	ours    func(l *lock.Locker) *lock.Lock
	channel string // what a waiter subscribes to begins so
	young   bool   // older Redissons do not have it
}

func pairs() []pair {
	multi := func(l *lock.Locker) *lock.Lock { return lock.Multi(l.Reentrant("a"), l.Reentrant("b")) }
	red := func(l *lock.Locker) *lock.Lock {
		return lock.Redlock(l.Reentrant("a"), l.Reentrant("b"), l.Reentrant("c"))
	}
	return []pair{
		{java: "reentrant", name: "orders", ours: func(l *lock.Locker) *lock.Lock { return l.Reentrant("orders") }, channel: "redisson_lock__channel:{orders}"},
		{java: "reentrant", name: "a{tag}b", ours: func(l *lock.Locker) *lock.Lock { return l.Reentrant("a{tag}b") }, channel: "redisson_lock__channel:a{tag}b"},
		{java: "fair", name: "orders", ours: func(l *lock.Locker) *lock.Lock { return l.Fair("orders") }, channel: "redisson_lock__channel:{orders}:"},
		{java: "fenced", name: "orders", ours: func(l *lock.Locker) *lock.Lock { return l.Fenced("orders") }, channel: "redisson_lock__channel:{orders}", young: true},
		{java: "write", name: "orders", ours: func(l *lock.Locker) *lock.Lock { return l.ReadWrite("orders").Write() }, channel: "redisson_rwlock:{orders}"},
		{java: "group", name: "orders,one,two", ours: func(l *lock.Locker) *lock.Lock { return l.Group("orders", "two", "one") }, channel: "redisson_lock__channel:{orders}", young: true},
		{java: "multi", name: "a,b", ours: multi, channel: "redisson_lock__channel:{a}"},
		{java: "red", name: "a,b,c", ours: red, channel: "redisson_lock__channel:"},
	}
}

// each tries every kind on a server of its own, in one Java process each.
func each(t *testing.T, try func(t *testing.T, w *testServer, j *java, p pair)) {
	for _, p := range pairs() {
		if p.young && older(t) {
			continue // it is younger than this Redisson
		}
		t.Run(p.java+" "+p.name, func(t *testing.T) {
			w := newTestServer(t)
			try(t, w, newJava(t, w.server.Addr), p)
		})
	}
}

func held(t *testing.T, l lock.Lockable, options ...lock.LockOption) *lock.Hold {
	t.Helper()
	h, err := l.Lock(brief(t), options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

func unlocked(t *testing.T, h *lock.Hold) {
	t.Helper()
	if err := h.Unlock(brief(t)); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func refused(t *testing.T, l lock.Lockable) {
	t.Helper()
	if _, err := l.TryLock(brief(t)); !errors.Is(err, lock.ErrNotAcquired) {
		t.Fatalf("TryLock = %v, want ErrNotAcquired", err)
	}
}

// beside waits for the lock beside the test; the result waits for it.
func beside(t *testing.T, l lock.Lockable) func() *lock.Hold {
	t.Helper()
	type result struct {
		hold *lock.Hold
		err  error
	}
	got := make(chan result, 1)
	ctx := brief(t)
	go func() {
		h, err := l.Lock(ctx)
		got <- result{h, err}
	}()
	return func() *lock.Hold {
		t.Helper()
		r := <-got
		if r.err != nil {
			t.Fatalf("Lock: %v", r.err)
		}
		return r.hold
	}
}

// within fails if a lock took too long from one to the next.
func within(t *testing.T, began time.Time, way string) {
	t.Helper()
	if took := time.Since(began); took > soon {
		t.Errorf("%s it took %v", way, took)
	}
}

// Java holds, Go waits and is woken, and the other way round, again and again:
// neither polls within the time that the test allows.
func TestLocks_PassFromHandToHand(t *testing.T) {
	each(t, func(t *testing.T, w *testServer, j *java, p pair) {
		ours := p.ours(w.locker())
		for range 3 {
			j.do("locked", "ann", p.java+".lock", p.name)
			refused(t, ours)
			got := beside(t, ours)
			w.listens(1, p.channel)
			began := time.Now()
			j.do("unlocked", "ann", p.java+".unlock", p.name)
			hold := got()
			within(t, began, "from Java to us")

			j.do("false", "ann", p.java+".try", p.name, 0)
			waits := j.begin("bob", p.java+".lock", p.name)
			if p.java != "multi" && p.java != "red" { // those ask again instead
				w.listens(1, p.channel)
			}
			waits.waits()
			began = time.Now()
			unlocked(t, hold)
			waits.is("locked")
			within(t, began, "from us to Java")
			j.do("unlocked", "bob", p.java+".unlock", p.name)
		}
		j.do("true", "ann", p.java+".try", p.name, handover.Milliseconds()) // 3.17.0 never gets several in no time
		j.do("unlocked", "ann", p.java+".unlock", p.name)
	})
}

// What one side has entered twice it must leave twice before the other gets it.
func TestLocks_EnteredTwiceAreLeftTwice(t *testing.T) {
	each(t, func(t *testing.T, w *testServer, j *java, p pair) {
		ours := p.ours(w.locker())
		j.do("locked", "ann", p.java+".lock", p.name)
		j.do("locked", "ann", p.java+".lock", p.name)
		j.do("unlocked", "ann", p.java+".unlock", p.name)
		refused(t, ours)
		j.do("unlocked", "ann", p.java+".unlock", p.name)
		hold := held(t, ours)
		again, err := hold.Reenter(brief(t))
		if err != nil {
			t.Fatal(err)
		}
		unlocked(t, hold)
		j.do("false", "ann", p.java+".try", p.name, 0)
		unlocked(t, again)
		j.do("true", "ann", p.java+".try", p.name, handover.Milliseconds()) // 3.17.0 never gets several in no time
	})
}

// Two leases long both sides keep what they hold, and a Java process that is
// killed keeps it for one lease at most.
func TestLocks_AreRenewedAndOutliveNobodyForLong(t *testing.T) {
	const lease = 3 * time.Second
	for _, p := range pairs() {
		if p.young && older(t) {
			continue
		}
		t.Run(p.java+" "+p.name, func(t *testing.T) {
			t.Parallel() // it waits for leases
			w := newTestServer(t)
			j := startJava(t, "single", w.server.Addr, lease)
			ours := p.ours(w.locker(lock.WithWatchdog(lease)))
			hold := held(t, ours)
			j.do("false", "ann", p.java+".try", p.name, 2*lease.Milliseconds())
			unlocked(t, hold)

			j.do("locked", "ann", p.java+".lock", p.name)
			ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
			defer cancel()
			if _, err := ours.Lock(ctx); !errors.Is(err, lock.ErrNotAcquired) {
				t.Fatalf("Lock beside Java's renewed one = %v, want ErrNotAcquired", err)
			}
			j.kill()
			unlocked(t, held(t, p.ours(w.locker(lock.WithPollInterval(lease)))))
		})
	}
}

// Values of one group are held by both sides at a time, unless they share one.
func TestGroup_OnlyCommonValuesExclude(t *testing.T) {
	if older(t) {
		return // no locks of groups yet
	}
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	l := w.locker()
	j.do("locked", "ann", "group.lock", "orders,one,two")
	hold := held(t, l.Group("orders", "three"))
	refused(t, l.Group("orders", "two", "four"))
	j.do("false", "bob", "group.try", "orders,three,four", 0)
	j.do("true", "bob", "group.try", "orders,four", 0)
	got := beside(t, l.Group("orders", "two", "five"))
	w.listens(1, "redisson_lock__channel:{orders}")
	j.do("unlocked", "ann", "group.unlock", "orders,one,two")
	unlocked(t, got())
	waits := j.begin("ann", "group.lock", "orders,three")
	w.listens(1, "redisson_lock__channel:{orders}")
	waits.waits()
	unlocked(t, hold)
	waits.is("locked")
	j.do("unlocked", "ann", "group.unlock", "orders,three")
	j.do("unlocked", "bob", "group.unlock", "orders,four")
	if n := w.eye.Exists(t.Context(), "orders").Val(); n != 0 {
		t.Errorf("fields are left: %v", w.eye.HGetAll(t.Context(), "orders").Val())
	}
}

// What Java left when it was killed is free after its lease, although others keep
// the group's key alive, and nothing of it stays.
func TestGroup_WhatAKilledJavaHeldIsFreeAfterItsLease(t *testing.T) {
	if older(t) {
		return // no locks of groups yet
	}
	const lease = 3 * time.Second
	w := newTestServer(t)
	kept := held(t, w.locker().Group("orders", "kept"))
	j := startJava(t, "single", w.server.Addr, lease)
	j.do("locked", "ann", "group.lock", "orders,one,two")
	got := beside(t, w.locker().Group("orders", "one", "two"))
	w.listens(1, "redisson_lock__channel:{orders}")
	j.kill()
	unlocked(t, got())
	unlocked(t, kept)
	if n := w.eye.Exists(t.Context(), "orders").Val(); n != 0 {
		t.Errorf("fields are left: %v", w.eye.HGetAll(t.Context(), "orders").Val())
	}
}

// The one in front is served first, whichever language he speaks.
func TestFair_ServesInTheOrderOfAsking(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker(lock.WithPollInterval(4 * time.Second)).Fair("orders") // says that it lives
	queue := func(n int64) {
		t.Helper()
		await.Until(t, "the next one queues", func() bool { return w.eye.LLen(t.Context(), "redisson_lock_queue:{orders}").Val() == n })
	}
	j.do("locked", "ann", "fair.lock", "orders")
	one := beside(t, ours)
	queue(1)
	two := j.begin("bob", "fair.lock", "orders")
	queue(2)
	three := beside(t, ours)
	queue(3)
	four := j.begin("cid", "fair.lock", "orders")
	queue(4)

	j.do("unlocked", "ann", "fair.unlock", "orders")
	hold := one()
	two.waits()
	unlocked(t, hold)
	two.is("locked")
	refused(t, ours)
	j.do("unlocked", "bob", "fair.unlock", "orders")
	hold = three()
	four.waits()
	unlocked(t, hold)
	four.is("locked")
	j.do("unlocked", "cid", "fair.unlock", "orders")
	queue(0)
}

// A token that Go got is above all of Java's before, and Java's after are above it.
func TestFenced_TokensRiseAcrossLanguages(t *testing.T) {
	if older(t) {
		return // no fenced locks yet
	}
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().Fenced("orders")
	last := int64(0)
	for range 3 {
		token := number(t, j.begin("ann", "fenced.token", "orders").wait())
		if token <= last {
			t.Fatalf("Java's token %d after %d", token, last)
		}
		j.do("unlocked", "ann", "fenced.unlock", "orders")
		hold := held(t, ours)
		if last = hold.Token(); last <= token {
			t.Fatalf("our token %d after Java's %d", last, token)
		}
		unlocked(t, hold)
	}
}

// Readers of both languages read together, and the writer of either waits for all.
func TestReadWrite_ReadersReadTogether(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	rw := w.locker().ReadWrite("orders")
	j.do("locked", "ann", "read.lock", "orders")
	r := held(t, rw.Read())
	j.do("false", "bob", "write.try", "orders", 0)
	refused(t, rw.Write())

	writer := j.begin("bob", "write.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	j.do("unlocked", "ann", "read.unlock", "orders")
	writer.waits()
	unlocked(t, r)
	writer.is("locked")

	reader := beside(t, rw.Read())
	w.listens(1, "redisson_rwlock:{orders}")
	j.do("locked", "bob", "read.lock", "orders") // goes on as a reader
	j.do("unlocked", "bob", "write.unlock", "orders")
	j.do("unlocked", "bob", "read.unlock", "orders")
	r = reader()

	got := j.begin("ann", "write.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	unlocked(t, r)
	got.is("locked")
	j.do("unlocked", "ann", "write.unlock", "orders")

	// A writer of ours that goes on as a reader wakes Java's readers.
	wr := held(t, rw.Write())
	r = held(t, rw.Read(), lock.WithOwner(wr.Owner()))
	together := j.begin("ann", "read.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	unlocked(t, wr)
	together.is("locked")
	j.do("unlocked", "ann", "read.unlock", "orders")
	unlocked(t, r)
}

// Java's readers come in at once, whenever they have asked: a writer that lets go while
// they are about to wait wakes them too.
func TestReadWrite_ReadersThatComeWhileTheWriterGoesAreWoken(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	writer := w.locker().ReadWrite("orders").Write()
	worst := time.Duration(0)
	for i := range 200 {
		hold := held(t, writer)
		reader := j.begin("ann", "read.lock", "orders")
		subscribing := time.NewTimer(time.Duration(i%20) * 200 * time.Microsecond) // it subscribes, and asks again
		<-subscribing.C
		began := time.Now()
		unlocked(t, hold)
		reader.is("locked")
		worst = max(worst, time.Since(began))
		j.do("unlocked", "ann", "read.unlock", "orders")
	}
	t.Logf("the slowest of 200 came in after %v", worst)
	if worst > soon {
		t.Errorf("one came in after %v", worst)
	}
}

// What Java takes away by force is lost here, and goes to whoever waits.
func TestForce_TakesAwayFromEitherSide(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker(lock.WithWatchdog(time.Second)).Reentrant("orders")
	hold := held(t, ours)
	next := beside(t, w.locker().Reentrant("orders"))
	w.listens(1, "redisson_lock__channel:{orders}")
	j.do("true", "ann", "reentrant.force", "orders")
	await.Until(t, "the hold has ended", func() bool { return hold.Context().Err() != nil })
	if err := context.Cause(hold.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the hold ended with %v, want ErrLost", err)
	}
	unlocked(t, next())
	j.do("false", "ann", "reentrant.force", "orders")
	for _, kind := range []string{"reentrant", "fair", "write"} { // and we take it from Java
		name := "by-us-" + kind
		lk := map[string]*lock.Lock{
			"reentrant": w.locker().Reentrant(name), "fair": w.locker().Fair(name), "write": w.locker().ReadWrite(name).Write(),
		}[kind]
		j.do("locked", "ann", kind+".lock", name)
		waits := j.begin("bob", kind+".lock", name)
		await.Until(t, "bob listens", func() bool {
			return len(w.eye.PubSubChannels(t.Context(), "*{"+name+"}*").Val()) == 1
		})
		if was, err := lk.ForceUnlock(brief(t)); err != nil || !was {
			t.Fatalf("ForceUnlock = %v, %v", was, err)
		}
		waits.is("locked")
		j.do("unlocked", "bob", kind+".unlock", name)
	}
}

// Who holds a lock here, and would not renew it for twenty minutes, notices that Java has
// taken it away.
func TestForce_IsNoticedBeforeARenewal(t *testing.T) {
	for _, kind := range []string{"reentrant", "read", "write"} {
		w := newTestServer(t)
		j := newJava(t, w.server.Addr)
		l := w.locker(lock.WithWatchdog(time.Hour))
		lk := map[string]*lock.Lock{"reentrant": l.Reentrant("orders"), "read": l.ReadWrite("orders").Read(), "write": l.ReadWrite("orders").Write()}[kind]
		hold := held(t, lk)
		w.listens(1, "redisson_")
		j.do("true", "ann", kind+".force", "orders")
		await.Until(t, kind+": the holder notices", func() bool { return hold.Context().Err() != nil })
		if err := context.Cause(hold.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%s: the hold ended with %v, want ErrLost", kind, err)
		}
	}
}
