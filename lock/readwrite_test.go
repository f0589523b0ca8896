package lock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestReadWrite_ReadersShareAndExcludeTheWriter(t *testing.T) {
	w := newTestServer(t)
	one, two := w.locker().ReadWrite("a"), w.locker().ReadWrite("a")
	r1, r2, r3 := locked(t, one.Read()), locked(t, one.Read()), locked(t, two.Read())
	refused(t, one.Write())
	unlocked(t, r1)
	unlocked(t, r2)
	refused(t, two.Write())
	unlocked(t, r3)
	wr := locked(t, two.Write())
	refused(t, one.Read())
	refused(t, one.Write())
	unlocked(t, wr)
	w.empty()
}

func TestReadWrite_TheWriterWakesAllReaders(t *testing.T) {
	w := newTestServer(t)
	wr := locked(t, w.locker().ReadWrite("a").Write())
	var waiting []func(*testing.T) *Hold
	for range 3 {
		l := w.locker(WithPollInterval(time.Hour))
		for range 3 {
			waiting = append(waiting, beside(func() (*Hold, error) { return l.ReadWrite("a").Read().Lock(ctxOf(t)) }))
		}
	}
	await.Until(t, "all processes listen", func() bool { return w.listeners("redisson_rwlock:{a}") == 3 })
	unlocked(t, wr)
	for _, got := range waiting {
		defer unlocked(t, got(t)) // all at the same time
	}
}

func TestReadWrite_ADowngradedWriterLetsReadersIn(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	wr := locked(t, rw.Write())
	r := locked(t, rw.Read(), WithOwner(wr.Owner()))
	other := w.locker(WithPollInterval(time.Hour)).ReadWrite("a")
	got := beside(func() (*Hold, error) { return other.Read().Lock(ctxOf(t)) })
	await.Until(t, "the reader listens", func() bool { return w.listeners("redisson_rwlock:{a}") == 1 })
	unlocked(t, wr)
	second := got(t)
	refused(t, other.Write())
	unlocked(t, r)
	refused(t, other.Write())
	unlocked(t, second)
	w.empty()
}

func TestReadWrite_AReaderCannotBecomeTheWriter(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	r := locked(t, rw.Read())
	_, err := rw.Write().Lock(ctxOf(t), WithOwner(r.Owner()))
	wantErr(t, err, ErrNotReentrant)
	unlocked(t, r)
}

func TestReadWrite_LeasesAreNotAdded(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	wr := locked(t, rw.Write())
	var more []*Hold
	for range 5 {
		h := again(t, wr)
		more = append(more, h)
	}
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl > DefaultLease {
		t.Errorf("TTL = %v after six entries, want at most %v", ttl, DefaultLease)
	}
	for _, h := range append(more, wr) {
		unlocked(t, h)
	}
	w.empty()
}

func TestReadWrite_TheHashLastsAsLongAsTheLongestReader(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	long, short, third := locked(t, rw.Read(), WithLease(time.Hour)), locked(t, rw.Read(), WithLease(time.Minute)), locked(t, rw.Read())
	for _, step := range []struct {
		hold     *Hold
		min, max time.Duration
	}{{third, 59 * time.Minute, time.Hour}, {long, 59 * time.Second, time.Minute}} {
		unlocked(t, step.hold)
		if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl < step.min || ttl > step.max {
			t.Errorf("TTL = %v, want %v to %v", ttl, step.min, step.max)
		}
	}
	unlocked(t, short)

	wr := locked(t, rw.Write(), WithLease(time.Hour))
	r := locked(t, rw.Read(), WithOwner(wr.Owner()), WithLease(time.Minute))
	unlocked(t, wr)
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl > time.Minute {
		t.Errorf("TTL = %v after the writer left, want the reader's 1m", ttl)
	}
	unlocked(t, r)
	w.empty()
}

func TestReadWrite_ADeadReaderHoldsTheWriterForItsLeaseOnly(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	dead := locked(t, l.ReadWrite("a").Read(), WithLease(100*time.Millisecond))
	alive := locked(t, l.ReadWrite("a").Read())
	ended(t, dead)
	unlocked(t, alive)
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).ReadWrite("a").Write()))
	w.empty()
}

func TestReadWrite_RenewsTheHoldsBesideTheHash(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithWatchdog(renewedLease))
	one := locked(t, l.ReadWrite("a").Read())
	two := again(t, one)
	end := time.Now().Add(renewedLease)
	await.Until(t, "the lease would be over", func() bool { return time.Now().After(end) })
	if n := w.eye.Exists(ctxOf(t), "a", "{a}:"+one.Owner().String()+":rwlock_timeout:1", "{a}:"+one.Owner().String()+":rwlock_timeout:2").Val(); n != 3 {
		t.Errorf("%d of 3 keys are left", n)
	}
	unlocked(t, one)
	unlocked(t, two)
	w.empty()
}

func TestReadWrite_CancelledReadersLeaveNothing(t *testing.T) {
	w := newTestServer(t)
	wr := locked(t, w.locker().ReadWrite("a").Write())
	ctx, cancel := context.WithCancel(t.Context())
	l := w.locker()
	failed := started(func() error { _, err := l.ReadWrite("a").Read().Lock(ctx); return err })
	await.Until(t, "the reader listens", func() bool { return w.listeners("redisson_rwlock:{a}") == 1 })
	cancel()
	wantErr(t, <-failed, context.Canceled)
	w.silent("redisson_rwlock:{a}")
	unlocked(t, wr)
	w.empty()
}

func TestGroup_OnlyCommonValuesExclude(t *testing.T) {
	w := newTestServer(t)
	one, two := w.locker(), w.locker()
	h := locked(t, one.Group("orders", "a", "b"))
	beside := locked(t, one.Group("orders", "c"))
	elsewhere := locked(t, two.Group("invoices", "a"))
	refused(t, two.Group("orders", "b", "d"))
	refused(t, one.Group("orders", "b"))
	free := locked(t, two.Group("orders", "d")) // the refusal took nothing
	unlocked(t, h)
	refused(t, two.Group("orders", "a", "c"))
	unlocked(t, beside)
	h = locked(t, two.Group("orders", "a", "c"))
	for _, h := range []*Hold{h, free, elsewhere} {
		unlocked(t, h)
	}
	w.empty()
}

func TestGroup_OrderAndRepetitionAreOfNoMatter(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Group("orders", "b", "a", "b"))
	if n := len(w.hash("orders")); n != 6 {
		t.Errorf("%d fields, want three for each of two values", n)
	}
	second := locked(t, l.Group("orders", "a", "b"), WithOwner(h.Owner()))
	unlocked(t, h)
	refused(t, w.locker().Group("orders", "a"))
	unlocked(t, second)
	w.empty()
}

// A holder wakes those who wait for any of its values, in one process too.
func TestGroup_WakesAllWhoWaitForAPart(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Group("orders", "a", "b", "c"))
	l := w.locker(WithPollInterval(time.Hour))
	first := beside(func() (*Hold, error) { return l.Group("orders", "a", "d").Lock(ctxOf(t)) })
	second := beside(func() (*Hold, error) { return l.Group("orders", "b", "e").Lock(ctxOf(t)) })
	third := beside(func() (*Hold, error) {
		return w.locker(WithPollInterval(time.Hour)).Group("orders", "c", "f").Lock(ctxOf(t))
	})
	await.Until(t, "both processes listen", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 2 })
	await.Until(t, "all were refused twice", func() bool { return w.calls() >= 1+3*2 })
	unlocked(t, h)
	for _, h := range []*Hold{first(t), second(t), third(t)} { // all at the same time
		unlocked(t, h)
	}
	w.empty()
}

// What others left when they died keeps nobody out, and goes, although the group's
// key lives on.
func TestGroup_WhatTheDeadLeftIsTakenOver(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	kept := locked(t, l.Group("orders", "kept"))
	dead := fieldOf("a") + ":" + w.locker().id + ":57"
	w.eye.HSet(ctxOf(t), "orders", fieldOf("a"), dead[len(fieldOf("a"))+1:],
		dead+":expire_time", time.Now().Add(-time.Millisecond).UnixMilli(), dead+":lock_count", 2)
	wantFree(t, l.Group("orders", "a"))
	h := locked(t, w.locker(WithPollInterval(time.Hour)).Group("orders", "a"))
	if m := w.hash("orders"); len(m) != 6 || m[dead+":expire_time"]+m[dead+":lock_count"] != "" {
		t.Errorf("fields = %v, want three for each of two holders", m)
	}
	unlocked(t, h)
	unlocked(t, kept)
	w.empty()
}

// A waiter asks again when the lease of whoever keeps it out is over, not when the
// key is.
func TestGroup_WaitsForTheLeaseInTheWay(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	kept := locked(t, l.Group("orders", "kept"), WithLease(time.Hour))
	short := locked(t, l.Group("orders", "a"), WithLease(200*time.Millisecond))
	if left, err := l.Group("orders", "a", "b").RemainingLease(ctxOf(t)); err != nil || left > 200*time.Millisecond {
		t.Errorf("Remaining = %v, %v; want at most the short lease", left, err)
	}
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).Group("orders", "a", "b")))
	wantErr(t, short.Unlock(ctxOf(t)), ErrLost)
	if left, err := l.Group("orders", "a", "kept").RemainingLease(ctxOf(t)); err != nil || left < 50*time.Minute {
		t.Errorf("Remaining = %v, %v; want the longest of both", left, err)
	}
	unlocked(t, kept)
	w.empty()
}

// An hour is not cut short by a hold of a minute beside it, nor by what leaves.
func TestGroup_TheKeyLastsAsLongAsTheLongest(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	long := locked(t, l.Group("orders", "a"), WithLease(time.Hour))
	short := locked(t, l.Group("orders", "b"), WithLease(time.Minute))
	wantErr(t, short.Extend(ctxOf(t), 2*time.Minute), nil)
	unlocked(t, short)
	unlocked(t, locked(t, l.Group("orders", "a"), WithOwner(long.Owner()), WithLease(time.Minute)))
	if left, err := l.Group("orders", "a").RemainingLease(ctxOf(t)); err != nil || left < 59*time.Minute {
		t.Errorf("Remaining = %v, %v; want the hour", left, err)
	}
	if ttl := w.eye.PTTL(ctxOf(t), "orders").Val(); ttl < 59*time.Minute {
		t.Errorf("the key lasts %v, want an hour", ttl)
	}
	unlocked(t, long)
	w.eye.HSet(ctxOf(t), "orders", "others", "1") // without end
	unlocked(t, locked(t, l.Group("orders", "a")))
	if ttl := w.eye.TTL(ctxOf(t), "orders").Val(); ttl != -1 {
		t.Errorf("the key of others lasts %v, want without end", ttl)
	}
}

// With one value the hold is lost, and the others are free at once.
func TestGroup_IsLostWithAnyValue(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Group("orders", "a", "b"))
	if was, err := w.locker().Group("orders", "b", "z").ForceUnlock(ctxOf(t)); err != nil || !was {
		t.Fatalf("ForceUnlock = %v, %v", was, err)
	}
	refused(t, w.locker().Group("orders", "a"))
	other := locked(t, w.locker().Group("orders", "b"))
	wantErr(t, h.Extend(ctxOf(t), time.Minute), ErrLost)
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	unlocked(t, locked(t, l.Group("orders", "a")))
	unlocked(t, other)
	w.empty()
}

func TestGroup_ManyValuesTakeOneCall(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	unlocked(t, locked(t, l.Group("orders", "a"))) // Redis knows the scripts now
	values := make([]string, 1000)
	for i := range values {
		values[i] = strconv.Itoa(i)
	}
	before := w.calls()
	h := locked(t, l.Group("orders", values...))
	if n := len(w.hash("orders")); n != 3000 {
		t.Errorf("%d fields, want 3000", n)
	}
	unlocked(t, h)
	if n := w.calls() - before; n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
	w.empty()
}

func TestGroup_WithoutValuesOrNameIsRefused(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for _, lk := range []*Lock{l.Group("orders"), l.Group("", "a"), l.Group("or{ders", "a")} {
		_, err := lk.Lock(ctxOf(t))
		wantErr(t, err, ErrInvalidName)
		_, err = lk.Locked(ctxOf(t))
		wantErr(t, err, ErrInvalidName)
	}
	unlocked(t, locked(t, l.Group("orders", ""))) // a value may be empty
	w.empty()
}
